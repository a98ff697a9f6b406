"""KV cache: how full, how soon full, and requests preempted for room."""

from __future__ import annotations

import numpy as np

from analyzers.build import endpoint_scope, finding, measure, reach, window
from analyzers.capacity import finished_rate, lasting, standing_still
from analyzers.fleet import take
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Measure, Optimisation, Report, Severity
from collector.history import History
from collector.model import Frame, Level

FULL = 0.9
SLOPE_WINDOW_S = 30.0
PREEMPTION_WINDOW_S = 30.0
# More preemptions than one for ten finished requests redo a noticeable share of the prefill.
PREEMPTIONS_PER_REQUEST = 0.1
MIN_PREEMPTIONS = 5.0

_ADVICE = (
    Advice("admission", Optimisation.DELAY, "Admit fewer requests at once: each needs KV blocks until it ends"),
    Advice("weight", Optimisation.MOVE, "Send long requests to endpoints with free KV blocks"),
    Advice("scale", Optimisation.SHARE, "Add replicas for more KV cache"),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    rows = np.arange(len(frame.endpoints.rows))
    recent = window(context, 0.0, samples=2)
    waiting = take(history.mean(Level.ENDPOINT, "requests_waiting", recent), rows)
    usage = take(history.mean(Level.ENDPOINT, "kv_cache_usage", recent), rows)
    lowest = take(history.minimum(Level.ENDPOINT, "kv_cache_usage", recent), rows)
    if not lasting(history, context):
        lowest = np.full(rows.size, np.nan)
    span = reach(history, context, PREEMPTION_WINDOW_S)
    peak = take(history.maximum(Level.ENDPOINT, "kv_cache_usage", span), rows)
    preempted = take(history.increase(Level.ENDPOINT, "preemptions", span), rows)
    slope = take(history.slope(Level.ENDPOINT, "kv_cache_usage", window(context, SLOPE_WINDOW_S)), rows)
    finished = take(history.rate(Level.ENDPOINT, "generation_tokens", span), rows)
    done = finished_rate(history, rows, span)
    # Preemption empties the cache it ran out of: usage swings, so the peak counts where it happened.
    full = ((lowest >= FULL) & ((waiting > 0) | (preempted > 0))) | ((peak >= FULL) & (preempted > 0) & (waiting > 0))
    full &= ~standing_still(history, frame, context)
    findings: list[Finding] = []
    measures: list[Measure] = []
    for number, name in enumerate(frame.endpoints.rows):
        scope = endpoint_scope(name)
        pool = frame.topology.endpoints[name].pool if name in frame.topology.endpoints else None
        left = (1 - usage[number]) / slope[number] if slope[number] > 0 else float("nan")
        measures.append(measure("kv_seconds_to_full", scope, float(max(left, 0.0)) if np.isfinite(left) else None, "s"))
        if full[number]:
            evidence = [Evidence("kv_cache_usage", float(peak[number]), FULL, "fullest in the window", "ratio")]
            if np.isfinite(preempted[number]):
                evidence.append(
                    Evidence("preemptions", float(preempted[number]), 0.0, "requests put back for room", "requests")
                )
            if np.isfinite(waiting[number]):
                evidence.append(
                    Evidence(
                        "requests_waiting",
                        float(waiting[number]),
                        0.0,
                        "requests wait for blocks",
                        "requests",
                    )
                )
            findings.append(
                finding(
                    "kv-pressure",
                    scope,
                    context,
                    now,
                    severity=Severity.WARNING,
                    confidence=0.9 if preempted[number] > 0 else 0.75,
                    layer=Layer.MEMORY,
                    summary=(
                        f"{name}'s KV cache is the limit: {100 * peak[number]:.0f} % used "
                        f"and {waiting[number]:.0f} requests wait"
                    ),
                    evidence=evidence,
                    advice=_ADVICE,
                    pool=pool,
                )
            )
        if preempted[number] >= MIN_PREEMPTIONS and finished[number] > 0:
            rate, per_request = preempted[number] / span, PREEMPTIONS_PER_REQUEST * done[number]
            if np.isfinite(per_request) and rate > per_request:
                findings.append(
                    finding(
                        "preemption-storm",
                        scope,
                        context,
                        now,
                        severity=Severity.WARNING,
                        confidence=0.9,
                        layer=Layer.MEMORY,
                        pool=pool,
                        advice=_ADVICE,
                        summary=f"{name} preempts {rate:.2f} requests/s: their prefill is paid again",
                        evidence=[
                            Evidence(
                                "preemptions",
                                float(rate),
                                float(per_request),
                                "per second, against a tenth of the finished",
                                "1/s",
                            )
                        ],
                    )
                )
    return Report(tuple(findings), tuple(measures))
