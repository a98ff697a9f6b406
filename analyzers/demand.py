"""Demand: more first attempts than before, by more than chance."""

from __future__ import annotations

import numpy as np

from analyzers.arrivals import gateway_arrivals
from analyzers.build import finding, pool_scope, window
from analyzers.fleet import divide
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from collector.history import History
from collector.model import Frame

RECENT_S = 15.0
BASELINE_S = 300.0
SURGE = 1.25
# Excess over the Poisson noise of both counts, in standard deviations.
SIGMAS = 4.0

_ADVICE = (
    Advice("scale", Optimisation.SHARE, "Add replicas for the demand asked for, not for what is finished"),
    Advice("admission", Optimisation.DELAY, "Hold low-priority work until they are ready"),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    findings: list[Finding] = []
    for pool in frame.topology.pools:
        surge = _surge(history, frame, context, pool)
        if surge is None:
            continue
        findings.append(
            finding(
                "demand-surge",
                pool_scope(pool),
                context,
                now,
                severity=Severity.INFO,
                confidence=0.85,
                layer=Layer.CLIENT,
                pool=pool,
                summary=(f"Demand on pool {pool} rose to {surge.observed:.1f} requests/s from {surge.expected:.1f}"),
                evidence=[surge],
                advice=_ADVICE,
            )
        )
    return Report(tuple(findings))


def _surge(history: History, frame: Frame, context: Context, pool: str) -> Evidence | None:
    """First attempts against their past: retries are no demand, and what engines finish cannot show it."""
    recent_span, past_span = window(context, RECENT_S), window(context, BASELINE_S, samples=8)
    if history.span_s() < 2 * recent_span:
        return None
    latest = gateway_arrivals(history, frame, context, pool, recent_span)
    long = gateway_arrivals(history, frame, context, pool, past_span)
    recent, whole = (latest.offered if latest else None), (long.offered if long else None)
    if recent is None or whole is None:
        return None
    # The long window holds the recent one: take it out, so that a surge is not held against itself.
    held = min(past_span, history.span_s())
    past = max(0.0, (whole * held - recent * recent_span) / max(held - recent_span, context.interval_s))
    ratio = divide(recent, past)
    noise = SIGMAS * np.sqrt(max(past, 1e-9) / recent_span)
    if ratio is None or ratio < SURGE or recent - past < noise:
        return None
    why = f"first attempts over {recent_span:.0f} s against the {held:.0f} s before"
    return Evidence("offered_rate", recent, past, why, "1/s")
