"""The agent's own metrics, on a private registry.

Counters and histograms are kept here by prometheus-client; what describes the present is in `present`.
Every name is listed in docs/metrics.md; a test compares both ways.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics

from actuators.model import Lever, Status
from inferostat.present import CycleFacts, PresentCollector

PHASES = ("sense", "analyze", "decide", "act", "total")
CYCLE_RESULTS = ("ok", "degraded", "failed")
CYCLE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Telemetry:
    """Own metrics. `clock` gives unix seconds, read at each scrape: ages grow even if the loop hangs."""

    def __init__(self, version: str, mode: str, clock: Callable[[], float]) -> None:
        # the *_created series double the output and say nothing that a counter's own start does not
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._duration = Histogram(
            "inferostat_cycle_duration_seconds", "Wall time of a cycle's phases.", ("phase",),
            buckets=CYCLE_BUCKETS_S, registry=self.registry,
        )  # fmt: skip
        self._cycles = self._counter("inferostat_cycles_total", "Cycles by result.", "result")
        self._overruns = self._counter("inferostat_cycle_overruns_total", "Cycles longer than the interval.")
        self._findings = self._counter("inferostat_findings_total", "Findings raised.", "slug", "severity")
        self._actions = self._counter("inferostat_actions_total", "Actions by outcome.", "lever", "status")
        self._reverts = self._counter("inferostat_reverts_total", "Actions undone: no effect.", "lever")
        self._paused = self._gauge("inferostat_paused", "1 while a human has paused all acting.")
        self._mode = self._gauge("inferostat_mode_info", "Always 1; the label is the mode.", "mode")
        self._reload_ok = self._gauge(
            "inferostat_config_last_reload_successful", "1 if the last (re)load of the configuration worked."
        )
        self._reload_at = self._gauge(
            "inferostat_config_last_reload_success_timestamp_seconds", "Time of the last good (re)load."
        )
        Info("inferostat_build", "Always 1.", registry=self.registry).info(
            {"version": version, "python": platform.python_version()}
        )
        self._present = PresentCollector(clock)
        self.registry.register(self._present)
        self._active: frozenset[str] = frozenset()
        self._prime()
        self.mode(mode)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _prime(self) -> None:
        """Create the closed sets of label values at 0, so that the first event is an increase."""
        for phase in PHASES:
            self._duration.labels(phase)
        for result in CYCLE_RESULTS:
            self._cycles.labels(result)
        for lever in Lever:
            self._reverts.labels(lever.value)
            for status in Status:
                self._actions.labels(lever.value, status.value)

    def phase_done(self, phase: str, seconds: float) -> None:
        self._duration.labels(phase).observe(seconds)

    def cycle_done(self, result: str, facts: CycleFacts | None, overran: bool = False) -> None:
        """Count one cycle. `facts` is None when it failed before there were any: the old ones stay."""
        self._cycles.labels(result).inc()
        if overran:
            self._overruns.inc()
        if facts is None:
            return
        self._present.facts = facts
        active = {finding.id: finding for finding in facts.analysis.findings}
        for finding_id in active.keys() - self._active:
            finding = active[finding_id]
            self._findings.labels(finding.slug, finding.severity.name.lower()).inc()
        self._active = frozenset(active)

    def action_done(self, lever: Lever, status: Status) -> None:
        self._actions.labels(lever.value, status.value).inc()

    def reverted(self, lever: Lever) -> None:
        self._reverts.labels(lever.value).inc()

    def paused(self, paused: bool) -> None:
        self._paused.set(float(paused))

    def mode(self, mode: str) -> None:
        self._mode.clear()
        self._mode.labels(mode).set(1.0)

    def configuration_loaded(self, successful: bool, at: float) -> None:
        self._reload_ok.set(float(successful))
        if successful:
            self._reload_at.set(at)
