"""Latency regressions adjusted for what is asked, and mix shifts where that explains them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from analyzers.build import finding, pool_scope
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from analyzers.sequential import MIN_BASELINE, Shift, explained, find_rise
from analyzers.series import CONFOUNDERS, LatencySeries, latency_series
from collector.history import History
from collector.model import FloatArray, Frame

SIGNALS = ("itl", "ttft")
SLUGS = ("latency-regression", "mix-shift")
FAST_BUCKET_S, BUCKET_S = 5.0, 15.0
# Elasticities: latency grows at most in proportion to the tokens computed and to the load. The cached
# share is in the tokens computed already; it is kept to name the cause.
BOUNDS = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
OUTSIDE = np.array([1.0, 1.0, 0.0])
MIX_MOVED = math.log(1.2)
PEER_BUCKETS, PEER_MIN_BUCKETS = 8, 4
PEER_EFFECT, PEER_T = math.log(1.1), 4.0


@dataclass(frozen=True, slots=True)
class _Verdict:
    signal: str
    at: float
    ratio: float
    why: str


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    """Judges once a bucket; in between, what was found stands."""
    bucket = max(FAST_BUCKET_S if context.interval_s < FAST_BUCKET_S else BUCKET_S, 3 * context.interval_s)
    if math.floor(now / bucket) == math.floor((now - context.interval_s) / bucket):
        return Report(tuple(f for f in context.previous if f.slug in SLUGS))
    findings: list[Finding] = []
    for pool in frame.topology.pools.values():
        regressions: list[_Verdict] = []
        mixes: list[_Verdict] = []
        for signal in SIGNALS:
            whole = latency_series(history, pool.endpoints, signal, bucket)
            rise, mix = _over_time(context, pool.name, whole)
            regressions += rise
            mixes += mix
            regressions += _between_builds(history, frame, pool.endpoints, signal, bucket)
        if regressions:
            findings.append(_regression(context, pool.name, regressions, now))
        elif mixes:
            findings.append(_mix(context, pool.name, mixes, now))
    return Report(tuple(findings))


def _baseline(context: Context, pool: str, series: LatencySeries) -> int:
    """Buckets of the baseline: those before a finding that lasts, else the older half."""
    for found in context.previous:
        if found.slug in SLUGS and found.scope == pool_scope(pool):
            before = int(np.searchsorted(series.times, found.since))
            if before >= MIN_BASELINE:
                return before
    return max(MIN_BASELINE, series.times.size // 2)


def _over_time(context: Context, pool: str, series: LatencySeries) -> tuple[list[_Verdict], list[_Verdict]]:
    baseline = _baseline(context, pool, series)
    if series.times.size <= baseline:
        return [], []
    raw = find_rise(series.latency, baseline)
    if raw is None:
        return [], []
    part = explained(series.latency, series.confounders, baseline, BOUNDS, OUTSIDE)
    rise = find_rise(series.latency - part, baseline)
    if rise is not None:
        why = f"adjusted for prompt length, load and cache, {100 * (rise.ratio - 1):.0f} % slower than its baseline"
        return [_Verdict(series.signal, float(series.times[rise.onset]), rise.ratio, why)], []
    moved = _moved(series.confounders, baseline, raw)
    return ([], [_Verdict(series.signal, float(series.times[raw.onset]), raw.ratio, moved)]) if moved else ([], [])


def _moved(confounders: FloatArray, baseline: int, shift: Shift) -> str:
    """The confounders that moved with the latency, in words; empty when none moved enough to name."""
    parts: list[str] = []
    for number, name in enumerate(CONFOUNDERS):
        before, after = confounders[:baseline, number], confounders[shift.onset :, number]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if before.size == 0 or after.size == 0:
            continue
        change = float(np.median(after) - np.median(before))
        if name == "cached_share":
            if change < -0.1:
                parts.append(f"the cached share of prompts fell by {-100 * change:.0f} points")
        elif change > MIX_MOVED:
            parts.append(f"{name.replace('_', ' ')} rose by {100 * (math.exp(change) - 1):.0f} %")
    return " and ".join(parts)


def _between_builds(
    history: History, frame: Frame, endpoints: tuple[str, ...], signal: str, bucket: float
) -> list[_Verdict]:
    """The slowest build against the quickest at the same moments, the work they were given taken off."""
    groups: dict[str, list[str]] = {}
    for name in endpoints:
        build = frame.topology.endpoints[name].build if name in frame.topology.endpoints else None
        if build is not None:
            groups.setdefault(build, []).append(name)
    if len(groups) < 2:
        return []
    series = {build: _tail(latency_series(history, tuple(names), signal, bucket)) for build, names in groups.items()}
    typical = {build: float(np.nanmedian(s.latency)) for build, s in series.items() if np.isfinite(s.latency).any()}
    if len(typical) < 2:
        return []
    slow, quick = (
        max(typical, key=lambda build: typical[build]),
        min(typical, key=lambda build: typical[build]),
    )
    work = np.maximum(series[slow].confounders[:, :2] - series[quick].confounders[:, :2], 0.0).sum(axis=1)
    gap = series[slow].latency - series[quick].latency - work
    gap = gap[np.isfinite(gap)]
    if gap.size < PEER_MIN_BUCKETS:
        return []
    effect = float(np.median(gap))
    error = float(np.std(gap, ddof=1)) / math.sqrt(gap.size)
    if effect < PEER_EFFECT or effect < PEER_T * error:
        return []
    why = f"build {slow} is {100 * (math.exp(effect) - 1):.0f} % slower than build {quick} on work alike"
    return [_Verdict(signal, float(series[slow].times[0]), math.exp(effect), why)]


def _tail(series: LatencySeries) -> LatencySeries:
    keep = slice(-PEER_BUCKETS, None)
    return replace(series, times=series.times[keep], latency=series.latency[keep], confounders=series.confounders[keep])


def _evidence(verdicts: list[_Verdict]) -> list[Evidence]:
    return [Evidence(f"{verdict.signal}_mean", verdict.ratio, 1.0, verdict.why, "ratio") for verdict in verdicts]


def _regression(context: Context, pool: str, verdicts: list[_Verdict], now: float) -> Finding:
    worst = max(verdicts, key=lambda verdict: verdict.ratio)
    changed = any("build" in verdict.why for verdict in verdicts)
    return finding(
        "latency-regression",
        pool_scope(pool),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.9 if len(verdicts) > 1 or changed else 0.8,
        summary=f"Pool {pool}: {worst.signal.upper()} regressed: {worst.why}",
        layer=Layer.CHANGE if changed else Layer.DECODE if worst.signal == "itl" else Layer.PREFILL,
        evidence=_evidence(verdicts),
        pool=pool,
        onset=min(verdict.at for verdict in verdicts),
        advice=(
            Advice(
                "weight",
                Optimisation.MOVE,
                "Shift weight to the build or endpoints that are not slower, then roll back",
            ),
        ),
    )


def _mix(context: Context, pool: str, verdicts: list[_Verdict], now: float) -> Finding:
    worst = max(verdicts, key=lambda verdict: verdict.ratio)
    return finding(
        "mix-shift",
        pool_scope(pool),
        context,
        now,
        severity=Severity.INFO,
        confidence=0.8,
        layer=Layer.CLIENT,
        pool=pool,
        summary=(
            f"Pool {pool}: {worst.signal.upper()} rose by {100 * (worst.ratio - 1):.0f} % "
            f"because {worst.why}; the engines are not slower"
        ),
        evidence=_evidence(verdicts),
        onset=min(verdict.at for verdict in verdicts),
        advice=(Advice("cache", Optimisation.AVOID, "Prefix caching takes repeated prompt parts off the prefill"),),
    )
