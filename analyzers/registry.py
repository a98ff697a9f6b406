"""The analyzers in their order, and what each cycle makes of their reports together."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers import (
    demand,
    economics,
    failures,
    gpu,
    health,
    load,
    memory,
    outlier,
    regression,
    saturation,
    storm,
    telemetry,
)
from analyzers.model import Analysis, Analyzer, Context, Finding, Measure, Scope, ScopeKind
from collector.history import History
from collector.model import Frame

ANALYZERS: tuple[Analyzer, ...] = (
    telemetry.analyze,
    health.analyze,
    load.analyze,
    storm.analyze,
    saturation.analyze,
    memory.analyze,
    demand.analyze,
    outlier.analyze,
    failures.analyze,
    regression.analyze,
    gpu.analyze,
    economics.analyze,
)

# On an endpoint whose gauges cannot be believed, nothing else may rest on them.
_UNBELIEVABLE = frozenset({"engine-hung", "gauges-stale", "engine-down", "target-unreachable"})
_GAUGE_BASED = frozenset({"saturated", "kv-pressure", "preemption-storm", "endpoint-outlier"})
# A finding of the left slug says what those on the right say of the same scope, and more.
_COVERS = {
    "engine-hung": frozenset({"gauges-stale"}),
    "engine-down": frozenset({"target-unreachable"}),
    "telemetry-outage": frozenset({"saturated", "queue-growing", "demand-surge"}),
    "latency-regression": frozenset({"mix-shift"}),
}


def analyze(history: History, frame: Frame, context: Context, now: float) -> Analysis:
    """Run every analyzer on one cycle; findings are merged, most severe first."""
    findings: list[Finding] = []
    measures: list[Measure] = []
    for analyzer in ANALYZERS:
        report = analyzer(history, frame, context, now)
        findings.extend(report.findings)
        measures.extend(report.measures)
    return Analysis(now, merge(findings), tuple(measures))


def merge(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding per slug and scope (the surer one), without those that another one covers."""
    best: dict[tuple[str, Scope], Finding] = {}
    for found in findings:
        held = best.get(found.key)
        if held is None or found.confidence > held.confidence:
            best[found.key] = found
    doubtful = {f.scope for f in best.values() if f.slug in _UNBELIEVABLE and f.scope.kind is ScopeKind.ENDPOINT}
    kept = [
        found
        for found in best.values()
        if not (found.slug in _GAUGE_BASED and found.scope in doubtful)
        and not any(found.slug in _COVERS.get(slug, ()) and (slug, found.scope) in best for slug in _COVERS)
    ]
    return tuple(sorted(kept, key=lambda f: (-f.severity, -f.confidence, f.slug, f.scope)))
