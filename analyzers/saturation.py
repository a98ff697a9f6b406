"""Engines at their batch limit with requests waiting, and queues that grow.

What is finished is flat once engines are full, so saturation is read from the entrance: waiting and TTFT.
"""

from __future__ import annotations

import numpy as np

from analyzers.build import Memory, endpoint_scope, finding, pool_scope, window
from analyzers.capacity import Capacity, measure_capacity
from analyzers.fleet import BoolArray, known_sum, take
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from collector.history import History
from collector.model import Frame, Histogram, Level, Quantile

SLOPE_WINDOW_S = 30.0
# A queue counts once its wait is this share of the first-token objective.
WAIT_SHARE = 0.1
# Growth that chance alone brings to a random walk stays below this many standard deviations.
SIGMAS = 3.0

_ADVICE = (
    Advice("scale", Optimisation.SHARE, "Add replicas: the queue is capacity, not a fault"),
    Advice("weight", Optimisation.MOVE, "Send new work to endpoints that have room"),
    Advice("admission", Optimisation.DELAY, "Admit by queue depth until capacity arrives"),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    memory = Memory(context)
    findings: list[Finding] = []
    for pool in frame.topology.pools:
        capacity = measure_capacity(history, frame, context, pool, memory)
        full = _at_limit(history, context, capacity)
        findings.extend(_endpoint(context, capacity, int(number), now) for number in np.flatnonzero(full))
        known = np.isfinite(capacity.waiting)
        if known.any() and full[known].all() and known.mean() >= 0.5:
            findings.append(_pool(history, context, capacity, now))
        growing = _growing(history, context, capacity, now)
        if growing is not None:
            findings.append(growing)
    return Report(tuple(findings))


def _at_limit(history: History, context: Context, capacity: Capacity) -> BoolArray:
    """Requests waited through three samples, the batch is as full as it was ever seen, and work goes on."""
    fullest = take(history.maximum(Level.ENDPOINT, "requests_running", window(context, 0.0, samples=2)), capacity.rows)
    limit = np.where(np.isfinite(capacity.batch_limit), capacity.batch_limit, fullest)
    objective = context.settings(capacity.pool).slo.ttft_s
    long_wait = np.where(
        np.isfinite(capacity.sustained_wait_s), capacity.sustained_wait_s > WAIT_SHARE * objective, True
    )
    full = (fullest > 0) & (fullest >= 0.9 * limit)
    # Where the batch is not shown, a wait beyond the whole objective is the only sign, and enough.
    unseen = ~np.isfinite(fullest) & (capacity.sustained_wait_s > objective)
    busy = (capacity.sustained > 0) & (full | unseen)
    return np.asarray(busy & long_wait & capacity.progressing, dtype=np.bool_)


def _evidence(waiting: float, running: float, limit: float, wait: float, objective: float) -> list[Evidence]:
    evidence = [
        Evidence("requests_waiting", waiting, 0.0, "requests waited through three samples", "requests"),
        Evidence(
            "requests_running",
            running,
            limit if np.isfinite(limit) else None,
            "the batch is full",
            "requests",
        ),
    ]
    if np.isfinite(wait):
        evidence.append(
            Evidence(
                "queue_wait_s",
                wait,
                objective,
                "waiting requests over capacity against the TTFT objective",
                "s",
            )
        )
    return evidence


def _endpoint(context: Context, capacity: Capacity, number: int, now: float) -> Finding:
    objective = context.settings(capacity.pool).slo.ttft_s
    name, wait = capacity.names[number], float(capacity.wait_s[number])
    evidence = _evidence(
        float(capacity.waiting[number]),
        float(capacity.running[number]),
        float(capacity.batch_limit[number]),
        wait,
        objective,
    )
    return finding(
        "saturated",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.9 if np.isfinite(wait) else 0.75,
        summary=f"{name} is at its batch limit with {capacity.waiting[number]:.0f} requests waiting",
        layer=Layer.QUEUE,
        evidence=evidence,
        advice=_ADVICE,
        pool=capacity.pool,
    )


def _pool(history: History, context: Context, capacity: Capacity, now: float) -> Finding:
    waiting, running = known_sum(capacity.waiting) or 0.0, known_sum(capacity.running)
    running = float("nan") if running is None else running
    waits = capacity.wait_s[np.isfinite(capacity.wait_s)]
    wait = float(waits.max()) if waits.size else float("nan")
    objective = context.settings(capacity.pool).slo.ttft_s
    late = bool(np.isfinite(wait)) and wait > objective
    return finding(
        "saturated",
        pool_scope(capacity.pool),
        context,
        now,
        severity=Severity.CRITICAL if late else Severity.WARNING,
        confidence=0.9,
        summary=f"Every endpoint of pool {capacity.pool} is at its batch limit; {waiting:.0f} requests wait",
        layer=Layer.QUEUE,
        advice=_ADVICE,
        pool=capacity.pool,
        evidence=[
            *_evidence(waiting, running, known_sum(capacity.batch_limit) or float("nan"), wait, objective),
            *_late(history, context, capacity),
        ],
    )


def _growing(history: History, context: Context, capacity: Capacity, now: float) -> Finding | None:
    """The pool's queue grows by more than chance: arrivals and departures make it a random walk."""
    span = window(context, SLOPE_WINDOW_S)
    moving = capacity.progressing
    slopes = take(history.slope(Level.ENDPOINT, "requests_waiting", span), capacity.rows)[moving]
    growth, queue = known_sum(slopes), known_sum(capacity.waiting[moving])
    rate = known_sum(capacity.throughput[moving])
    if growth is None or queue is None or growth <= 0 or (known_sum(capacity.sustained[moving]) or 0.0) <= 0:
        return None
    # Variance of a least-squares slope over a random walk with variance 2*rate per second is 2.4*rate/span.
    chance = SIGMAS * np.sqrt(2.4 * rate / span) if rate is not None else 0.0
    if growth * span < max(1.0, 0.1 * queue) or (growth < chance and not _steadily(history, context, capacity, span)):
        return None
    settings = context.settings(capacity.pool)
    mu = capacity.pool_mu or rate
    until = None if mu is None else max(0.0, settings.slo.ttft_s * mu - queue) / growth
    evidence = [
        Evidence(
            "requests_waiting",
            queue,
            None,
            f"growing by {growth:.2f} requests/s over {span:.0f} s",
            "requests",
        )
    ]
    if until is not None:
        evidence.append(
            Evidence("time_to_slo_s", until, None, "until a new request waits longer than the TTFT objective", "s")
        )
    evidence += _late(history, context, capacity)
    if rate is not None:
        why = "asked for per second, against what is finished: the finished rate is flat at capacity"
        evidence.append(Evidence("demand_rate", rate + growth, rate, why, "1/s"))
    return finding(
        "queue-growing",
        pool_scope(capacity.pool),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.8,
        summary=(f"The queue of pool {capacity.pool} grows by {growth:.2f} requests/s: more comes in than is finished"),
        layer=Layer.QUEUE,
        evidence=evidence,
        advice=_ADVICE,
        pool=capacity.pool,
    )


def _steadily(history: History, context: Context, capacity: Capacity, span: float) -> bool:
    """Slow growth counts when it lasts four windows and the queue never emptied in the newest."""
    long = known_sum(take(history.slope(Level.ENDPOINT, "requests_waiting", 4 * span), capacity.rows))
    least = known_sum(take(history.minimum(Level.ENDPOINT, "requests_waiting", span), capacity.rows))
    return long is not None and long > 0 and least is not None and least > 0


def _late(history: History, context: Context, capacity: Capacity) -> list[Evidence]:
    """The TTFT objective missed while requests wait."""
    objective = context.settings(capacity.pool).slo.ttft_s
    p95 = _ttft(history, capacity.names, window(context, SLOPE_WINDOW_S))
    if p95 is None or not p95.exceeds(objective):
        return []
    return [Evidence("ttft", p95.value, objective, "p95 over the objective while requests wait", "s")]


def _ttft(history: History, names: tuple[str, ...], span: float) -> Quantile | None:
    merged: Histogram | None = None
    for name in names:
        delta = history.delta(Level.ENDPOINT, name, "ttft", span)
        if delta is not None:
            merged = delta if merged is None else merged.plus(delta) or merged
    return merged.quantile(0.95) if merged is not None else None
