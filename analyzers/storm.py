"""Retry storms: the measures of a pool's flow and the state machine over them.

NORMAL -> VULNERABLE (nu > 1) -> INCIPIENT (two warnings) -> STORM (amplification and wasted work)
-> COLLAPSED (the wait outlives the clients) -> RECOVERING (until it was calm for a while) -> NORMAL.
Metastable failures: Bronson et al., HotOS'21; Huang et al., OSDI'22. Warnings and their false alarms were
chosen by a simulation of ramps and steps: the time to timeout warns first, the wait and the excess confirm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrivals import Arrivals, backlog, measure_arrivals
from analyzers.build import Memory, endpoint_scope, finding, measure, pool_scope, window
from analyzers.capacity import Capacity, measure_capacity
from analyzers.fleet import divide, known_sum, route_rows, take
from analyzers.model import (
    Advice,
    Context,
    Evidence,
    Finding,
    Layer,
    Measure,
    Optimisation,
    Report,
    Severity,
)
from collector.history import History
from collector.model import FloatArray, Frame, Level, SignalState

SLOPE_WINDOW_S = 10.0
BASELINE_WINDOW_S = 300.0
CALM_S = 30.0
WORSENING = ("retry-storm-incipient", "retry-storm", "retry-storm-collapsed")
ACTIVE = (*WORSENING, "retry-storm-recovering")
# A pool is judged by the wait that a quarter of its endpoints reach: one slow endpoint is an outlier.
WAIT_QUANTILE = 0.75

_ADVICE = (
    Advice(
        "retry_budget",
        Optimisation.AVOID,
        "Cut client retries at the gateway to 10 percent or less of first attempts",
    ),
    Advice(
        "admission", Optimisation.DELAY, "Shed new work, lowest priority first, until the queue is drained"
    ),
    Advice("breaker", Optimisation.AVOID, "Limit requests in flight to what the engines finish in time"),
    Advice("scale", Optimisation.SHARE, "Add replicas too, but they come too late to break the loop"),
)


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


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    memory = Memory(context)
    findings: list[Finding] = []
    measures: list[Measure] = []
    for pool in frame.topology.pools:
        capacity = measure_capacity(history, frame, context, pool, memory)
        arrivals = measure_arrivals(history, frame, context, capacity)
        flow = _flow(history, context, capacity, arrivals)
        calm = _calm(context, memory, pool, flow)
        findings.extend(_judge(context, pool, flow, calm, now))
        measures.extend(_measures(history, frame, context, capacity, flow, calm))
    return Report(tuple(findings), tuple(measures))


def _flow(history: History, context: Context, capacity: Capacity, arrivals: Arrivals) -> Flow:
    client = context.settings(capacity.pool).client
    service = capacity.service_time_s
    patience = client.timeout_s
    if client.timeout_on == "answer" and service is not None:
        # The clock covers the answer too: only what the service leaves of it may be spent waiting.
        patience = max(client.timeout_s - service, 0.05 * client.timeout_s)
    moving = capacity.progressing
    queue = known_sum(capacity.waiting[moving])
    slopes = take(
        history.slope(Level.ENDPOINT, "requests_waiting", window(context, SLOPE_WINDOW_S)), capacity.rows
    )
    growth = known_sum(slopes[moving])
    mu = capacity.pool_mu
    alpha_max = 1 + (client.max_retries if arrivals.clients_retry is not False else 0)
    offered = arrivals.offered if arrivals.offered is not None else arrivals.demand
    return Flow(
        arrivals=arrivals,
        mu=mu,
        vulnerability=None if offered is None else divide(offered * alpha_max, mu),
        patience_s=patience,
        queue=queue,
        growth=growth,
        wait_s=_upper(capacity.wait_s[moving]),
        sustained_wait_s=_upper(capacity.sustained_wait_s[moving]),
        time_to_timeout_s=_time_to_timeout(patience, mu, queue, growth),
        wasted_share=_wasted(capacity, arrivals),
        excess=_excess(history, context, capacity, arrivals),
    )


def _upper(waits: FloatArray) -> float | None:
    known = waits[np.isfinite(waits)]
    return float(np.quantile(known, WAIT_QUANTILE, method="lower")) if known.size else None


def _time_to_timeout(
    patience: float, mu: float | None, queue: float | None, growth: float | None
) -> float | None:
    """t* = (T mu - Q) / (dQ/dt): 0 once the queue outlives the patience, unknown while it does not grow."""
    if mu is None or queue is None or growth is None:
        return None
    room = patience * mu - queue
    if room <= 0:
        return 0.0
    return room / growth if growth > 0 else None


def _wasted(capacity: Capacity, arrivals: Arrivals) -> float | None:
    """w: share of the work done that no client got. Without the engines' side, of the admitted what failed."""
    done = known_sum(capacity.throughput)
    if done is None or done <= 0 or arrivals.goodput is None:
        return arrivals.fail_share
    return min(1.0, max(0.0, 1 - arrivals.goodput / done))


def _excess(history: History, context: Context, capacity: Capacity, arrivals: Arrivals) -> bool | None:
    """More than 20 percent more attempts than the offered load, while more than 5 percent fail.

    Where retries cannot be told apart, attempts are held against their own past, and the goodput must not
    have risen with them: a plain surge brings more successes.
    """
    if arrivals.fail_share is None:
        return None
    failing = arrivals.fail_share > 0.05
    if arrivals.amplification is not None:
        return failing and arrivals.amplification > 1.2
    past = measure_arrivals(history, _latest(history), context, capacity, window(context, BASELINE_WINDOW_S))
    now_rate, before = arrivals.attempts or arrivals.admitted, past.attempts or past.admitted
    more = divide(now_rate, before)
    served = divide(arrivals.goodput, past.goodput)
    if more is None or served is None:
        return None
    return failing and more > 1.2 and served < 1.05


def _latest(history: History) -> Frame:
    latest = history.latest
    if latest is None:
        raise ValueError(
            "expected a history with at least one frame, found none; append a frame before analyzing"
        )
    return latest


def _calm(context: Context, memory: Memory, pool: str, flow: Flow) -> float:
    """Seconds for which the wait has stayed under a quarter of the patience; unknown is not calm."""
    quiet = flow.wait_s is not None and flow.wait_s < flow.patience_s / 4
    fail = flow.arrivals.fail_share
    if not quiet or (fail is not None and fail > 0.05):
        return 0.0
    return (memory.get("storm_calm_s", pool_scope(pool)) or 0.0) + context.interval_s


def warnings(flow: Flow) -> list[Evidence]:
    """The early warnings that hold now, as evidence; two of them make a storm incipient."""
    patience = flow.patience_s
    out: list[Evidence] = []
    soon = flow.time_to_timeout_s
    if soon is not None and soon < 10 * patience and (flow.queue or 0.0) > 0:
        out.append(
            Evidence(
                "time_to_timeout_s", soon, 10 * patience, "at this growth the queue outlives the clients", "s"
            )
        )
    wait = flow.sustained_wait_s
    if wait is not None and wait > patience / 2:
        out.append(
            Evidence(
                "queue_wait_s",
                wait,
                patience / 2,
                "half the clients' patience is spent in the queue, three samples running",
                "s",
            )
        )
    elif wait is not None and soon is not None and wait > patience / 4 and soon < 2 * patience:
        # The wait half way to its limit, and the limit nearer than two patiences: those who arrive now time out.
        out.append(
            Evidence(
                "queue_wait_s",
                wait,
                patience / 4,
                "a quarter of the patience is spent in the queue and the rest goes within two",
                "s",
            )
        )
    if flow.excess:
        out.append(
            Evidence(
                "fail_share",
                flow.arrivals.fail_share,
                0.05,
                "attempts exceed the offered load by a fifth while they fail",
                "ratio",
            )
        )
    return out


def _step(
    flow: Flow, previous: str | None, calm_s: float, calm_needed_s: float
) -> tuple[str | None, list[Evidence]]:
    """The state with its evidence, at most one step worse than a cycle ago: a single reading is no collapse."""
    slug, evidence = _state(flow, previous, calm_s, calm_needed_s)
    if slug in WORSENING:
        held = WORSENING.index(previous) if previous in WORSENING else -1
        slug = WORSENING[min(WORSENING.index(slug), held + 1)]
    return slug, evidence


def _state(
    flow: Flow, previous: str | None, calm_s: float, calm_needed_s: float
) -> tuple[str | None, list[Evidence]]:
    arrivals, alpha, wasted = flow.arrivals, flow.arrivals.amplification, flow.wasted_share
    if arrivals.clients_retry is False:
        return None, []  # it fails and nobody comes back: an overload, not a loop
    offered = arrivals.offered
    evidence = warnings(flow)
    looping = (
        alpha is not None and alpha > 1.2 and wasted is not None and wasted > 0.1 and flow.excess is True
    )
    if looping:
        evidence.append(Evidence("amplification", alpha, 1.2, "attempts for one first attempt", "ratio"))
        evidence.append(
            Evidence("wasted_share", wasted, 0.1, "work the engines did that no client got", "ratio")
        )
    waits = flow.wait_s is not None and flow.wait_s > flow.patience_s
    if waits and looping and offered and arrivals.goodput is not None and arrivals.goodput < 0.5 * offered:
        evidence.append(
            Evidence(
                "goodput_rate",
                arrivals.goodput,
                offered,
                "less than half of what is asked for is served",
                "1/s",
            )
        )
        return "retry-storm-collapsed", evidence
    if looping:
        return "retry-storm", evidence
    possible = flow.vulnerability > 1 if flow.vulnerability is not None else arrivals.clients_retry is True
    # Once begun, one warning keeps it: a limit that bites silences warnings before the cause is gone.
    needed = 1 if previous in WORSENING else 2
    if possible and len(evidence) >= needed:
        return "retry-storm-incipient", evidence
    if previous is not None and calm_s < calm_needed_s:
        return "retry-storm-recovering", [
            Evidence(
                "queue_wait_s",
                flow.wait_s,
                flow.patience_s / 4,
                f"calm for {calm_s:.0f} of {calm_needed_s:.0f} s",
                "s",
            )
        ]
    return None, []


_SUMMARIES = {
    "retry-storm-incipient": (Severity.WARNING, 0.8, "Pool {pool} is about to enter a retry storm"),
    "retry-storm": (
        Severity.CRITICAL,
        0.9,
        "Pool {pool} is in a retry storm: retries make the load that makes them fail",
    ),
    "retry-storm-collapsed": (
        Severity.CRITICAL,
        0.95,
        "Pool {pool} has collapsed in a retry storm: clients leave before their turn comes",
    ),
    "retry-storm-recovering": (Severity.WARNING, 0.8, "Pool {pool} is recovering from a retry storm"),
}


def _judge(context: Context, pool: str, flow: Flow, calm_s: float, now: float) -> list[Finding]:
    scope = pool_scope(pool)
    previous = next((f.slug for f in context.previous if f.scope == scope and f.slug in ACTIVE), None)
    slug, evidence = _step(flow, previous, calm_s, window(context, CALM_S, samples=4))
    found: list[Finding] = []
    if slug is not None:
        severity, confidence, summary = _SUMMARIES[slug]
        found.append(
            finding(
                slug,
                scope,
                context,
                now,
                severity=severity,
                confidence=confidence,
                summary=summary.format(pool=pool),
                layer=Layer.CLIENT,
                evidence=evidence,
                advice=_ADVICE,
                pool=pool,
            )
        )
    if flow.vulnerability is not None and flow.vulnerability > 1:
        found.append(
            finding(
                "vulnerable",
                scope,
                context,
                now,
                severity=Severity.INFO,
                confidence=0.9,
                layer=Layer.CLIENT,
                pool=pool,
                summary=f"Pool {pool} could be held down by retries alone after a large enough trigger",
                evidence=[
                    Evidence(
                        "vulnerability",
                        flow.vulnerability,
                        1.0,
                        "load with all retries over capacity",
                        "ratio",
                    )
                ],
                advice=[
                    Advice(
                        "retry_budget",
                        Optimisation.AVOID,
                        "A standing retry budget lowers the largest amplification",
                    )
                ],
            )
        )
    return found


def _measures(
    history: History, frame: Frame, context: Context, capacity: Capacity, flow: Flow, calm_s: float
) -> list[Measure]:
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
        measure("storm_calm_s", scope, calm_s, "s"),
    ]
    for number, name in enumerate(capacity.names):
        own = endpoint_scope(name)
        pool.append(measure("capacity_mu", own, float(capacity.mu[number]), "1/s", SignalState.WARMING))
        pool.append(measure("queue_wait_s", own, float(capacity.wait_s[number]), "s"))
        pool.append(measure("batch_limit", own, float(limits[number]), "requests", SignalState.WARMING))
    return pool
