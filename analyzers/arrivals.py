"""What comes in and what comes of it, per pool: offered, attempts, admitted, goodput, failures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.build import window
from analyzers.capacity import Capacity, finished_rate
from analyzers.fleet import IntArray, divide, known_sum, route_rows, take
from analyzers.model import Context
from collector.history import History
from collector.model import Frame, Level

ARRIVALS_WINDOW_S = 10.0
JUDGE_WINDOW_S = 60.0
# Failures that must be seen before "nobody retries" is a conclusion and not luck.
FAILURES_TO_JUDGE = 10.0
# Below this share of failures followed by a retry, clients are held not to retry.
RETRIES_PER_FAILURE = 0.1


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rates in requests/s, None where unknown.

    offered: first attempts. attempts: first attempts and retries, refused ones included.
    admitted: sent to the engines. goodput: answered well as far as the gateway (else the engine) tells.
    fail_share: of the admitted, the share that failed or whose client left; our refusals do not count.
    demand: what is asked for: `offered` or, without a gateway, what is finished plus the queue's growth.
    """

    source: str
    offered: float | None = None
    attempts: float | None = None
    retries: float | None = None
    admitted: float | None = None
    goodput: float | None = None
    refused: float | None = None
    fail_share: float | None = None
    demand: float | None = None
    clients_retry: bool | None = None

    @property
    def amplification(self) -> float | None:
        return divide(self.attempts, self.offered)


def measure_arrivals(
    history: History, frame: Frame, context: Context, capacity: Capacity, window_s: float | None = None
) -> Arrivals:
    """`window_s` defaults to ten seconds or two periods of the loop (three samples)."""
    span = window(context, ARRIVALS_WINDOW_S, samples=2) if window_s is None else window_s
    gateway = gateway_arrivals(history, frame, context, capacity.pool, span)
    return gateway if gateway is not None else _from_engines(history, capacity, span)


def gateway_arrivals(history: History, frame: Frame, context: Context, pool: str, span: float) -> Arrivals | None:
    """The pool's arrivals as its routes count them; None where no gateway is read."""
    rows = route_rows(frame, pool)
    if rows.size == 0:
        return None

    def rate(signal: str) -> float | None:
        return known_sum(take(history.rate(Level.ROUTE, signal, span), rows))

    sent, overflow = rate("attempts"), rate("overflow")
    first, retry = rate("first_sent"), rate("retry_sent")
    arrived = rate("arrivals")
    if sent is None and first is not None:
        sent = first + (retry or 0.0)
    if sent is None and arrived is None:
        return None
    refused = _sum(overflow, rate("direct_responses"))
    offered = _offered(first, overflow, rate("first_503"), rate("retry_503"), context.shed_first_share.get(pool, 0.0))
    attempts = arrived if arrived is not None else _sum(sent, overflow)
    if offered is not None and attempts is not None:
        # The two counters are read a moment apart: more first attempts than arrivals is that moment.
        attempts = max(attempts, offered)
    retries = attempts - offered if attempts is not None and offered is not None else None
    failed = _failed(rate("upstream_5xx"), overflow, rate("client_disconnects"), rate("timeouts"))
    return Arrivals(
        source="gateway",
        offered=offered,
        attempts=attempts,
        retries=retries,
        admitted=sent,
        goodput=rate("upstream_2xx"),
        refused=refused,
        fail_share=None if failed is None or sent is None else (min(1.0, failed / sent) if sent > 0 else 0.0),
        demand=offered if offered is not None else attempts,
        clients_retry=_clients_retry(history, rows, context, retries),
    )


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _offered(
    first_sent: float | None,
    overflow: float | None,
    first_503: float | None,
    retry_503: float | None,
    shed: float,
) -> float | None:
    """First attempts: those sent, refused by the breaker (shared out by the 503s), shed at the door."""
    if first_sent is None:
        return None
    refused = 0.0
    if overflow is not None and first_503 is not None and retry_503 is not None and first_503 + retry_503 > 0:
        refused = overflow * first_503 / (first_503 + retry_503)
    return (first_sent + refused) / max(1 - shed, 0.01)


def _failed(errors: float | None, overflow: float | None, left: float | None, timeouts: float | None) -> float | None:
    """Failures of admitted requests: 5xx without the breaker's own, and clients that left.

    A gateway timeout is answered 504, so it is in the 5xx already and counts by itself only without them.
    """
    upstream = timeouts if errors is None else max(0.0, errors - (overflow or 0.0))
    return _sum(upstream, left)


def _clients_retry(history: History, rows: IntArray, context: Context, retries: float | None) -> bool | None:
    """Whether clients retry, as seen; None while too little has failed to tell.

    Failures of the last seconds do not count: their retries are still backing off. Nor do those we answer at
    the door: the answer may forbid a retry.
    """
    long, recent = window(context, JUDGE_WINDOW_S, samples=4), window(context, ARRIVALS_WINDOW_S, samples=1)

    def failures(span: float) -> float | None:
        def grown(signal: str) -> float | None:
            return known_sum(take(history.increase(Level.ROUTE, signal, span), rows))

        return _sum(grown("upstream_5xx"), grown("client_disconnects"))

    all_failures = failures(long)
    if all_failures is None or retries is None:
        return None
    older = all_failures - (failures(recent) or 0.0)
    if older < FAILURES_TO_JUDGE:
        return None
    came_back = known_sum(take(history.increase(Level.ROUTE, "retry_sent", long), rows)) or 0.0
    # Retries we refuse at the door are not sent: the present rate at the door stands for them.
    return max(came_back, retries * long) >= RETRIES_PER_FAILURE * older


def _from_engines(history: History, capacity: Capacity, span: float) -> Arrivals:
    """Without a gateway, retries look like first attempts and those that never got in are not seen at all."""
    rows = capacity.rows
    if rows.size == 0:
        return Arrivals("none")
    finished = known_sum(finished_rate(history, rows, span))
    growth = known_sum(take(history.slope(Level.ENDPOINT, "requests_waiting", span), rows))
    batch = known_sum(take(history.slope(Level.ENDPOINT, "requests_running", span), rows))
    throughput = finished if finished is not None else known_sum(capacity.throughput)
    demand = None if throughput is None else max(0.0, throughput + (growth or 0.0) + (batch or 0.0))
    sent = known_sum(take(history.rate(Level.ENDPOINT, "gateway_attempts", span), rows))
    errors = known_sum(take(history.rate(Level.ENDPOINT, "gateway_errors", span), rows))
    success = known_sum(take(history.rate(Level.ENDPOINT, "gateway_success", span), rows))
    return Arrivals(
        source="engines" if sent is None else "gateway's view of the endpoints",
        admitted=sent if sent is not None else demand,
        goodput=success if success is not None else finished,
        fail_share=divide(errors, sent),
        demand=sent if sent is not None else demand,
    )


def backlog(capacity: Capacity) -> float | None:
    """Requests the engines hold, running or waiting; None when too few engines are known."""
    return known_sum(
        np.where(np.isfinite(capacity.waiting), capacity.waiting, np.nan)
        + np.where(np.isfinite(capacity.running), capacity.running, 0.0)
    )
