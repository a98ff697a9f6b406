"""Requests refused, aborted or ended by errors, and a success rate that fell without a known cause."""

from __future__ import annotations

import math

import numpy as np

from analyzers.build import endpoint_scope, finding, pool_scope, reach, window
from analyzers.capacity import SUCCESS_REASONS, finished_rate
from analyzers.fleet import IntArray, known_sum, pool_rows, route_rows, take
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from collector.history import History
from collector.model import Frame, Level

WINDOW_S = 30.0
BASELINE_S = 300.0
MIN_EVENTS = 5.0
SHARE = 0.05
Z_LIMIT = 4.0


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    findings = _rejected(history, frame, context, now)
    for pool in frame.topology.pools:
        findings += [
            f
            for f in (
                _aborted(history, frame, context, pool, now),
                _regression(history, frame, context, pool, now),
            )
            if f
        ]
    return Report(tuple(findings))


def _rejected(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    span = reach(history, context, WINDOW_S)
    refused = take(history.increase(Level.ENDPOINT, "admission_rejections", span), np.arange(len(frame.endpoints.rows)))
    findings: list[Finding] = []
    for number in np.flatnonzero(refused >= MIN_EVENTS):
        name = frame.endpoints.rows[number]
        findings.append(
            finding(
                "requests-rejected",
                endpoint_scope(name),
                context,
                now,
                severity=Severity.WARNING,
                confidence=0.95,
                layer=Layer.ADMISSION,
                summary=f"{name} refused {refused[number]:.0f} requests at its queue limit in {span:.0f} s",
                pool=frame.topology.endpoints[name].pool if name in frame.topology.endpoints else None,
                evidence=[
                    Evidence(
                        "admission_rejections",
                        float(refused[number]),
                        0.0,
                        "streams refused so still count as HTTP 200",
                        "requests",
                    )
                ],
                advice=(
                    Advice(
                        "weight",
                        Optimisation.MOVE,
                        "Route to endpoints with room, or admit less at the gateway",
                    ),
                ),
            )
        )
    return findings


def _aborted(history: History, frame: Frame, context: Context, pool: str, now: float) -> Finding | None:
    """Work begun and not finished: the engine's own abort counter stays 0 when clients disconnect (vLLM)."""
    span = reach(history, context, WINDOW_S)
    rows = pool_rows(frame, pool)
    left = [known_sum(take(history.increase(Level.ROUTE, "client_disconnects", span), route_rows(frame, pool)))]
    left.append(known_sum(take(history.increase(Level.ENDPOINT, "requests_by_finish_reason.abort", span), rows)))
    known = [value for value in left if value is not None]
    finished = known_sum(finished_rate(history, rows, span))
    if not known or finished is None:
        return None
    aborted = max(known)
    total = aborted + finished * span
    if aborted < MIN_EVENTS or aborted / total < SHARE:
        return None
    return finding(
        "requests-aborted",
        pool_scope(pool),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.85,
        layer=Layer.CLIENT,
        pool=pool,
        summary=f"{aborted:.0f} requests of pool {pool} were given up by their clients in {span:.0f} s",
        evidence=[Evidence("aborted_share", aborted / total, SHARE, "of what ended in the window", "ratio")],
        advice=(
            Advice(
                "admission",
                Optimisation.AVOID,
                "Refuse early what cannot be answered before the client leaves",
            ),
        ),
    )


def _regression(history: History, frame: Frame, context: Context, pool: str, now: float) -> Finding | None:
    """Share of engine-side successes against the past: two proportions, and a difference that matters."""
    rows = pool_rows(frame, pool)
    recent, past = window(context, WINDOW_S), window(context, BASELINE_S, samples=10)
    if history.span_s() < 3 * recent:
        return None
    now_good, now_bad = _counts(history, rows, recent)
    all_good, all_bad = _counts(history, rows, past)
    if now_good is None or now_bad is None or all_good is None or all_bad is None:
        return None
    good, bad = max(0.0, all_good - now_good), max(0.0, all_bad - now_bad)
    total, now_total = good + bad, now_good + now_bad
    if now_bad < MIN_EVENTS or total < MIN_EVENTS or now_total <= 0:
        return None
    before, after = bad / total, now_bad / now_total
    pooled = (bad + now_bad) / (total + now_total)
    error = math.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / total + 1 / now_total))
    if after - before < SHARE or (after - before) / error < Z_LIMIT:
        return None
    return finding(
        "success-regression",
        pool_scope(pool),
        context,
        now,
        severity=Severity.CRITICAL,
        confidence=0.9,
        layer=Layer.UNKNOWN,
        pool=pool,
        summary=(f"Pool {pool} ends {100 * after:.0f} % of its requests in errors, {100 * before:.0f} % before"),
        evidence=[Evidence("error_share", after, before, f"over {recent:.0f} s against the time before", "ratio")],
        advice=(Advice("weight", Optimisation.MOVE, "Move load off the endpoints that err, and look for a change"),),
    )


def _counts(history: History, rows: IntArray, span: float) -> tuple[float | None, float | None]:
    good = [
        known_sum(take(history.increase(Level.ENDPOINT, f"requests_by_finish_reason.{r}", span), rows))
        for r in SUCCESS_REASONS
    ]
    bad = known_sum(take(history.increase(Level.ENDPOINT, "requests_by_finish_reason.error", span), rows))
    known = [value for value in good if value is not None]
    return (sum(known) if known else None), bad
