"""Demand: more is asked for than before, or more than is finished (which the finished rate cannot show)."""

from __future__ import annotations

import numpy as np

from analyzers.arrivals import Arrivals, measure_arrivals
from analyzers.build import Memory, finding, pool_scope, window
from analyzers.capacity import Capacity, measure_capacity
from analyzers.fleet import divide, known_sum, take
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from collector.history import History
from collector.model import Frame, Histogram, Level, Quantile

RECENT_S = 15.0
BASELINE_S = 300.0
SURGE = 1.25
# Excess over the Poisson noise of both counts, in standard deviations.
SIGMAS = 4.0
LATENCY_WINDOW_S = 30.0

_ADVICE = (
    Advice("scale", Optimisation.SHARE, "Add replicas for the demand asked for, not for what is finished"),
    Advice("admission", Optimisation.DELAY, "Hold low-priority work until they are ready"),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    memory = Memory(context)
    findings: list[Finding] = []
    for pool in frame.topology.pools:
        capacity = measure_capacity(history, frame, context, pool, memory)
        evidence = _surge(history, frame, context, capacity)
        behind = _falling_behind(history, context, capacity)
        if not evidence and not behind:
            continue
        findings.append(
            finding(
                "demand-surge", pool_scope(pool), context, now,
                severity=Severity.WARNING if behind else Severity.INFO, confidence=0.85 if evidence else 0.75,
                summary=_summary(pool, evidence, behind), layer=Layer.CLIENT,
                evidence=[*evidence, *behind], advice=_ADVICE, pool=pool,
            )
        )
    return Report(tuple(findings))


def _summary(pool: str, surge: list[Evidence], behind: list[Evidence]) -> str:
    if not surge:
        return f"Pool {pool} is asked for more than it finishes: {', '.join(e.signal for e in behind)} say so, the finished rate cannot"
    observed, expected = surge[0].observed or 0.0, surge[0].expected or 0.0
    return f"Demand on pool {pool} rose to {observed:.1f} requests/s from {expected:.1f}"


def _surge(history: History, frame: Frame, context: Context, capacity: Capacity) -> list[Evidence]:
    recent_span, past_span = window(context, RECENT_S), window(context, BASELINE_S, samples=8)
    if history.span_s() < 2 * recent_span:
        return []
    recent = _rate(measure_arrivals(history, frame, context, capacity, recent_span))
    whole = _rate(measure_arrivals(history, frame, context, capacity, past_span))
    if recent is None or whole is None:
        return []
    # The long window holds the recent one: take it out, so that a surge is not held against itself.
    held = min(past_span, history.span_s())
    past = max(0.0, (whole * held - recent * recent_span) / max(held - recent_span, context.interval_s))
    ratio = divide(recent, past)
    noise = SIGMAS * np.sqrt(max(past, 1e-9) / recent_span)
    if ratio is None or ratio < SURGE or recent - past < noise:
        return []
    return [Evidence("offered_rate", recent, past, f"first attempts over {recent_span:.0f} s against the {held:.0f} s before", "1/s")]


def _rate(arrivals: Arrivals) -> float | None:
    """First attempts where they are known: retries are no demand. Inferred demand is too noisy to compare."""
    return arrivals.offered if arrivals.source == "gateway" else None


def _falling_behind(history: History, context: Context, capacity: Capacity) -> list[Evidence]:
    """Waiting grows or TTFT is over its objective while engines are full and what they finish is flat."""
    span = window(context, LATENCY_WINDOW_S)
    slo = context.settings(capacity.pool).slo
    least = known_sum(take(history.minimum(Level.ENDPOINT, "requests_waiting", span), capacity.rows))
    growth = known_sum(take(history.slope(Level.ENDPOINT, "requests_waiting", span), capacity.rows))
    waiting = known_sum(capacity.waiting)
    if least is None or least <= 0 or waiting is None or not capacity.progressing.any():
        return []
    done = known_sum(capacity.throughput)
    evidence: list[Evidence] = []
    if growth is not None and growth * span >= max(1.0, 0.1 * waiting):
        why = f"grows by {growth:.2f}/s and never emptied in {span:.0f} s" + (f", while {done:.1f}/s are finished" if done is not None else "")
        evidence.append(Evidence("requests_waiting", waiting, 0.0, why, "requests"))
    slow = _ttft(history, capacity.names, span)
    if slow is not None and slow.exceeds(slo.ttft_s):
        evidence.append(Evidence("ttft", slow.value, slo.ttft_s, "p95 over the objective while requests wait", "s"))
    late = capacity.wait_s[np.isfinite(capacity.wait_s)]
    # A wait inside the objective with no growth is how a well-used pool looks.
    return evidence if evidence and late.size and float(late.max()) > 0.25 * slo.ttft_s else []


def _ttft(history: History, names: tuple[str, ...], span: float) -> Quantile | None:
    merged: Histogram | None = None
    for name in names:
        delta = history.delta(Level.ENDPOINT, name, "ttft", span)
        if delta is not None:
            merged = delta if merged is None else merged.plus(delta) or merged
    return merged.quantile(0.95) if merged is not None else None
