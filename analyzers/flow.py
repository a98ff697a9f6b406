"""How a pool's traffic flows: arrivals against capacity, and what follows for those who wait.

Formulas: vulnerability nu = offered * (1 + retries) / mu; time to timeout t* = (T mu - Q) / (dQ/dt); wasted
share w = 1 - goodput / work done (metastable failures: Bronson et al., HotOS'21; Huang et al., OSDI'22).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrivals import Arrivals, backlog, measure_arrivals
from analyzers.build import endpoint_scope, measure, pool_scope, window
from analyzers.capacity import Capacity
from analyzers.fleet import divide, known_sum, route_rows, take
from analyzers.model import Context, Measure
from collector.history import History
from collector.model import FloatArray, Frame, Level, SignalState

SLOPE_WINDOW_S = 10.0
BASELINE_WINDOW_S = 300.0
# A pool is judged by the wait that a quarter of its endpoints reach: one slow endpoint is an outlier.
WAIT_QUANTILE = 0.75


@dataclass(frozen=True, slots=True)
class Flow:
    """What the state machine looks at; None where unknown."""

    arrivals: Arrivals
    mu: float | None
    vulnerability: float | None
    patience_s: float
    queue: float | None
    growth: float | None
    wait_s: float | None
    sustained_wait_s: float | None
    time_to_timeout_s: float | None
    wasted_share: float | None
    excess: bool | None


def measure_flow(history: History, frame: Frame, context: Context, capacity: Capacity, arrivals: Arrivals) -> Flow:
    client = context.settings(capacity.pool).client
    service = capacity.service_time_s
    patience = client.timeout_s
    if client.timeout_on == "answer" and service is not None:
        # The clock covers the answer too: only what the service leaves of it may be spent waiting.
        patience = max(client.timeout_s - service, 0.05 * client.timeout_s)
    moving = capacity.progressing
    queue = known_sum(capacity.waiting[moving])
    slopes = take(history.slope(Level.ENDPOINT, "requests_waiting", window(context, SLOPE_WINDOW_S)), capacity.rows)
    growth = known_sum(slopes[moving])
    mu = capacity.pool_mu
    alpha_max = 1 + (client.max_retries if arrivals.clients_retry is not False else 0)
    offered = arrivals.offered if arrivals.offered is not None else arrivals.demand
    return Flow(
        arrivals=arrivals,
        mu=mu,
        vulnerability=None if offered is None else divide(offered * alpha_max, mu or _most(capacity)),
        patience_s=patience,
        queue=queue,
        growth=growth,
        wait_s=_upper(capacity.wait_s[moving]),
        sustained_wait_s=_upper(capacity.sustained_wait_s[moving]),
        time_to_timeout_s=_time_to_timeout(patience, mu, queue, growth),
        wasted_share=_wasted(capacity, arrivals),
        excess=_excess(history, frame, context, capacity, arrivals),
    )


def _most(capacity: Capacity) -> float | None:
    """Before a pool was ever seen at its limit: full batches at today's service time.

    A fuller batch is a slower one, so this is more than the pool can do, and the vulnerability from it a lower bound.
    """
    return divide(known_sum(capacity.batch_limit), capacity.service_time_s)


def _upper(waits: FloatArray) -> float | None:
    known = waits[np.isfinite(waits)]
    return float(np.quantile(known, WAIT_QUANTILE, method="lower")) if known.size else None


def _time_to_timeout(patience: float, mu: float | None, queue: float | None, growth: float | None) -> float | None:
    """t* = (T mu - Q) / (dQ/dt): 0 once the queue outlives the patience, unknown while it does not grow."""
    if mu is None or queue is None or growth is None:
        return None
    room = patience * mu - queue
    if room <= 0:
        return 0.0
    return room / growth if growth > 0 else None


def _wasted(capacity: Capacity, arrivals: Arrivals) -> float | None:
    """w: share of the work done that no client got; without the engines' side, of the admitted."""
    done = known_sum(capacity.throughput)
    if done is None or done <= 0 or arrivals.goodput is None:
        return arrivals.fail_share
    return min(1.0, max(0.0, 1 - arrivals.goodput / done))


def _excess(history: History, frame: Frame, context: Context, capacity: Capacity, arrivals: Arrivals) -> bool | None:
    """More than 20 percent more attempts than the offered load, while more than 5 percent fail.

    Where retries cannot be told apart, attempts are held against their own past, and the goodput must not
    have risen with them: a plain surge brings more successes.
    """
    if arrivals.fail_share is None:
        return None
    failing = arrivals.fail_share > 0.05
    if arrivals.amplification is not None:
        return failing and arrivals.amplification > 1.2
    past = measure_arrivals(history, frame, context, capacity, window(context, BASELINE_WINDOW_S))
    now_rate, before = arrivals.attempts or arrivals.admitted, past.attempts or past.admitted
    more = divide(now_rate, before)
    served = divide(arrivals.goodput, past.goodput)
    if more is None or served is None:
        return None
    return failing and more > 1.2 and served < 1.05


def flow_measures(frame: Frame, capacity: Capacity, flow: Flow) -> list[Measure]:
    """Every measure of the pool's flow, known or not, and those of its endpoints."""
    scope, arrivals = pool_scope(capacity.pool), flow.arrivals
    held = backlog(capacity)
    active = known_sum(frame.routes.column("active")[route_rows(frame, capacity.pool)])
    waits = capacity.wait_s[np.isfinite(capacity.wait_s)]
    limits = capacity.batch_limit
    pool = [
        measure("offered_rate", scope, arrivals.offered, "1/s", SignalState.NEVER_SEEN),
        measure("demand_rate", scope, arrivals.demand, "1/s"),
        measure("attempts_rate", scope, arrivals.attempts, "1/s", SignalState.NEVER_SEEN),
        measure("admitted_rate", scope, arrivals.admitted, "1/s"),
        measure("refused_rate", scope, arrivals.refused, "1/s"),
        measure("goodput_rate", scope, arrivals.goodput, "1/s"),
        measure("completed_rate", scope, known_sum(capacity.throughput), "1/s"),
        measure("amplification", scope, arrivals.amplification, "ratio"),
        measure("capacity_mu", scope, flow.mu, "1/s", SignalState.WARMING),
        measure("capacity_per_endpoint", scope, capacity.endpoint_mu, "1/s", SignalState.WARMING),
        measure("vulnerability", scope, flow.vulnerability, "ratio", SignalState.WARMING),
        measure("queue_wait_s", scope, float(waits.max()) if waits.size else None, "s"),
        measure("time_to_timeout_s", scope, flow.time_to_timeout_s, "s"),
        measure("timeout_slack_s", scope, flow.patience_s, "s"),
        measure("service_time_s", scope, capacity.service_time_s, "s"),
        measure("fail_share", scope, arrivals.fail_share, "ratio"),
        measure("wasted_share", scope, flow.wasted_share, "ratio"),
        measure("engine_backlog", scope, held, "requests"),
        measure("queue_growth", scope, flow.growth, "1/s"),
        measure("gateway_active", scope, active, "requests", SignalState.NEVER_SEEN),
        measure(
            "abandoned_work",
            scope,
            None if held is None or active is None else max(0.0, held - active),
            "requests",
        ),
        measure("batch_limit", scope, known_sum(limits), "requests", SignalState.WARMING),
        measure("output_tokens_per_request", scope, capacity.output_tokens, "tokens"),
    ]
    for number, name in enumerate(capacity.names):
        own = endpoint_scope(name)
        pool.append(measure("capacity_mu", own, float(capacity.mu[number]), "1/s", SignalState.WARMING))
        pool.append(measure("queue_wait_s", own, float(capacity.wait_s[number]), "s"))
        pool.append(measure("batch_limit", own, float(limits[number]), "requests", SignalState.WARMING))
    return pool
