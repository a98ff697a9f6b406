"""Engines that are down, hung, or leave gauges behind: three states that look alike from one scrape.

Busy: requests run and tokens flow. Hung: requests run, none gets a token, and more arrive. Stale: the gauges
say that requests run, but nothing arrives and nothing flows, so the gauges are what is left of work that was
cancelled (an engine sets its gauges only when it steps). Frozen gauges alone tell the last two not apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.build import endpoint_scope, finding, window
from analyzers.fleet import take
from analyzers.model import (
    Advice,
    Context,
    Evidence,
    Finding,
    Layer,
    Optimisation,
    Report,
    ScopeKind,
    Severity,
)
from analyzers.targets import endpoint_targets, sight_lost, starting
from collector.history import History
from collector.model import FloatArray, Frame, Level, TargetStatus

STALL_WINDOW_S = 4.0
# An answer that the gateway got this recently speaks for an engine whose metrics cannot be read.
SERVED_WINDOW_S = 10.0
STALL_SAMPLES = 4
LOOK_BACK_S = 300.0
# Confidence of a stall with arrivals, by how long no token came: a long prefill can hold a batch for seconds.
SURE_AFTER_S = 60.0
LIKELY_AFTER_S = 10.0
FROZEN_ONLY = 0.6

_HUNG_ADVICE = (
    Advice(
        "weight",
        Optimisation.MOVE,
        "Take the endpoint out of routing within the ejection cap and restart the engine",
    ),
)
_STALE_ADVICE = (
    Advice(
        "weight",
        Optimisation.MOVE,
        "Keep a small weight: one probe request makes the engine step and refreshes its gauges",
    ),
)


@dataclass(frozen=True)
class _Stalled:
    running: float
    waiting: float
    for_s: float
    arrivals: float | None
    open_requests: float | None
    timeouts: float | None


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    findings = [*_down(history, frame, context, now), *_stalls(history, frame, context, now)]
    return Report(tuple(findings))


def stalled_rows(history: History, frame: Frame, context: Context) -> FloatArray:
    """1 where requests ran through the whole window and the engine counted no token in it, else 0."""
    rows = np.arange(len(frame.endpoints.rows))
    span = window(context, STALL_WINDOW_S, STALL_SAMPLES)
    tokens = take(history.increase(Level.ENDPOINT, "generation_tokens", span), rows)
    prompts = take(history.increase(Level.ENDPOINT, "prompt_tokens", span), rows)
    least = take(history.minimum(Level.ENDPOINT, "requests_running", span), rows)
    # A prompt counted in the window is progress too: prefill has no token to show yet.
    still = (tokens == 0) & ~(prompts > 0) & (least > 0)
    return np.where(still & _covered(history, context), 1.0, 0.0)


def _covered(history: History, context: Context) -> bool:
    return history.span_s() >= STALL_SAMPLES * context.interval_s * 0.99


def _stalls(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    findings: list[Finding] = []
    span = window(context, STALL_WINDOW_S, STALL_SAMPLES)
    arrived = history.increase(Level.ENDPOINT, "gateway_attempts", span)
    timeouts = history.increase(Level.ENDPOINT, "gateway_timeouts", span)
    hung_before = {
        f.scope.name for f in context.previous if f.slug == "engine-hung" and f.scope.kind is ScopeKind.ENDPOINT
    }
    for number in np.flatnonzero(stalled_rows(history, frame, context)):
        name = frame.endpoints.rows[number]
        stall = _Stalled(
            running=frame.endpoints.cell(name, "requests_running").value,
            waiting=frame.endpoints.cell(name, "requests_waiting").value,
            for_s=_still_for(history, name),
            arrivals=arrived.cell(name).known,
            open_requests=frame.endpoints.cell(name, "gateway_active").known,
            timeouts=timeouts.cell(name).known,
        )
        pool = frame.topology.endpoints[name].pool if name in frame.topology.endpoints else None
        findings.append(_stall(name, stall, context, now, hung_before=name in hung_before, pool=pool))
    return findings


def _still_for(history: History, name: str) -> float:
    """Seconds since the last sample in which the token counter was seen to move."""
    samples = history.samples(Level.ENDPOINT, name, "generation_tokens", LOOK_BACK_S)
    if samples.times.size == 0:
        return 0.0
    moved = np.flatnonzero(samples.values != samples.values[-1])
    first = moved[-1] + 1 if moved.size else 0
    return float(samples.times[-1] - samples.times[first])


def _stall(name: str, stall: _Stalled, context: Context, now: float, *, hung_before: bool, pool: str | None) -> Finding:
    evidence = [
        Evidence("generation_tokens", 0.0, None, f"no token for {stall.for_s:.0f} s", "tokens"),
        Evidence("requests_running", stall.running, None, "requests are said to run all the while", "requests"),
    ]
    if np.isfinite(stall.waiting):
        evidence.append(Evidence("requests_waiting", stall.waiting, None, "requests in the queue", "requests"))
    used = (stall.arrivals or 0) > 0 or (stall.open_requests or 0) > 0
    # An engine that hung gets no arrivals once it is taken out of routing; only a token proves it alive.
    quiet = stall.arrivals == 0 and (stall.open_requests or 0) == 0 and not hung_before
    if stall.arrivals is not None:
        why = "requests the gateway sent it in the window" if used else "the gateway sent it nothing in the window"
        evidence.append(Evidence("gateway_attempts", stall.arrivals, None, why, "requests"))
    if quiet:
        return finding(
            "gauges-stale",
            endpoint_scope(name),
            context,
            now,
            severity=Severity.WARNING,
            confidence=0.85,
            layer=Layer.TELEMETRY,
            pool=pool,
            summary=f"{name}'s gauges are stale: no token progress, no arrivals; its load is not known",
            evidence=evidence,
            advice=_STALE_ADVICE,
            onset=now - stall.for_s,
        )
    if used:
        confidence = 0.95 if stall.for_s >= SURE_AFTER_S else 0.85 if stall.for_s >= LIKELY_AFTER_S else 0.7
        summary = f"{name} is hung: requests arrive and run, none has had a token for {stall.for_s:.0f} s"
    elif hung_before and stall.arrivals is not None:
        confidence, summary = 0.85, f"{name} is still hung: no token since it was found so"
    else:
        confidence = FROZEN_ONLY
        summary = (
            f"{name} seems hung: its gauges are frozen and no token came for {stall.for_s:.0f} s (or they are stale)"
        )
        evidence.append(
            Evidence(
                "gateway_attempts",
                None,
                None,
                "arrivals are not known: frozen gauges alone cannot tell hung from stale",
            )
        )
    return finding(
        "engine-hung",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.CRITICAL if confidence >= 0.8 else Severity.WARNING,
        confidence=confidence,
        summary=summary,
        layer=Layer.DECODE,
        evidence=evidence,
        advice=_HUNG_ADVICE,
        pool=pool,
        onset=now - stall.for_s,
    )


def _down(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    """Targets that cannot be read: down when the port refuses or the gateway cannot connect either."""
    findings: list[Finding] = []
    span = window(context, STALL_WINDOW_S)
    failures = history.increase(Level.ENDPOINT, "gateway_connect_failures", span)
    served = history.increase(Level.ENDPOINT, "gateway_success", window(context, SERVED_WINDOW_S))
    blind = sight_lost(frame)
    for name, target in endpoint_targets(frame).items():
        if target.up:
            continue
        if starting(history, target, now):
            findings.append(_cold_start(name, target, context, now, pool=frame.topology.endpoints[name].pool))
            continue
        cannot_connect = (failures.cell(name).known or 0.0) > 0
        serves = (served.cell(name).known or 0.0) > 0
        refused = "refused" in (target.error or "").lower()
        seen = target.scraped_at is not None
        pool = frame.topology.endpoints[name].pool
        gone = not blind and ((refused and cannot_connect) or (not serves and (refused or cannot_connect)))
        if seen and gone:
            findings.append(
                _engine_down(name, target, context, now, refused=refused, cannot_connect=cannot_connect, pool=pool)
            )
        elif blind or not refused or serves or not seen:
            findings.append(_unreachable(name, target, context, now, serves=serves, pool=pool))
    return findings


def _cold_start(name: str, target: TargetStatus, context: Context, now: float, *, pool: str) -> Finding:
    taken = 0.0 if target.failing_since is None else now - target.failing_since
    return finding(
        "cold-start",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.INFO,
        confidence=0.8,
        summary=f"{name} joined {taken:.0f} s ago and has not answered yet: it counts as coming supply, not as lost",
        layer=Layer.UNKNOWN,
        evidence=[Evidence("up", 0.0, 1.0, target.error or "the target has not answered yet", "bool")],
        pool=pool,
        onset=target.failing_since,
    )


def _engine_down(
    name: str,
    target: TargetStatus,
    context: Context,
    now: float,
    *,
    refused: bool,
    cannot_connect: bool,
    pool: str,
) -> Finding:
    failing_s = now - target.failing_since if target.failing_since is not None else 0.0
    evidence = [Evidence("up", 0.0, 1.0, target.error or "the target cannot be read", "bool")]
    if cannot_connect:
        evidence.append(
            Evidence(
                "gateway_connect_failures",
                None,
                0.0,
                "the gateway cannot connect to it either",
                "connections",
            )
        )
    # A port that refuses our scrape may be the metrics' alone. Only the gateway's own failures to connect make it
    # sure enough to act on: that it counted no answer just now may be chance, or not known at all.
    settled = refused and failing_s >= 2 * context.interval_s
    return finding(
        "engine-down",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.CRITICAL,
        confidence=0.95 if cannot_connect else 0.75 if settled else 0.6,
        summary=f"{name} is down: it was up and now nothing listens there",
        layer=Layer.DECODE,
        evidence=evidence,
        pool=pool,
        onset=target.failing_since,
        advice=(
            Advice("weight", Optimisation.MOVE, "Take the endpoint out of routing"),
            Advice("scale", Optimisation.SHARE, "Replace the replica"),
        ),
    )


def _unreachable(name: str, target: TargetStatus, context: Context, now: float, *, serves: bool, pool: str) -> Finding:
    why = "the gateway still gets answers from it" if serves else "nothing else is known of it"
    evidence = [Evidence("up", 0.0, 1.0, target.error or "the target cannot be read", "bool")]
    if serves:
        evidence.append(Evidence("gateway_success", None, None, why, "requests"))
    return finding(
        "target-unreachable",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.9,
        summary=f"{name}'s metrics cannot be read and {why}; its load is unknown, not zero",
        layer=Layer.TELEMETRY,
        evidence=evidence,
        pool=pool,
        onset=target.failing_since,
        advice=(Advice("weight", Optimisation.MOVE, "Leave its weight as it is until something is known"),),
    )
