"""Metrics of the present: built from the last cycle's facts whenever Prometheus asks.

A series goes when its endpoint goes, and an unknown number is an absent series, never a zero.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actuators.model import LeverReading
from analyzers.model import Analysis, ScopeKind
from collector.model import Frame, SignalState, Table

# measure -> (metric, help): the numbers of a pool that dashboards and alerts are built on
POOL_METRICS = {
    "offered_rate": ("inferostat_pool_offered_rate", "First attempts per second."),
    "attempts_rate": ("inferostat_pool_attempts_rate", "First attempts and retries per second."),
    "goodput_rate": ("inferostat_pool_goodput_rate", "Successes per second."),
    "amplification": ("inferostat_pool_amplification", "Attempts per offered request."),
    "vulnerability": (
        "inferostat_pool_vulnerability",
        "Offered x most attempts a request may make / capacity.",
    ),
    "capacity_mu": ("inferostat_pool_capacity_rate", "Requests per second the pool can finish."),
    "queue_wait_s": (
        "inferostat_pool_queue_wait_seconds",
        "Expected wait of a new request in the engines' queues.",
    ),
    "success_per_dollar": (
        "inferostat_pool_success_per_dollar",
        "Successes per dollar of allocated replicas.",
    ),
    "hbm_compute_ratio": ("inferostat_pool_hbm_compute_ratio", "DRAM active / tensor active."),
}


@dataclass(frozen=True)
class CycleFacts:
    """What the gauges show until the next cycle."""

    at: float
    frame: Frame
    analysis: Analysis
    readings: tuple[LeverReading, ...] = ()


class PresentCollector(Collector):
    """Families of the last cycle, built when they are asked for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.facts: CycleFacts | None = None

    def collect(self) -> Iterable[Metric]:
        if self.facts is None:
            return
        yield _single("inferostat_last_cycle_timestamp_seconds", "Time of the last cycle.", self.facts.at)
        yield from _targets(self.facts.frame, self._clock())
        yield _signal_states(self.facts.frame)
        yield from _analysis(self.facts.analysis)
        yield _levers(self.facts.readings)


def _single(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _targets(frame: Frame, now: float) -> Iterator[Metric]:
    up = GaugeMetricFamily("inferostat_target_up", "1 if the last scrape worked.", labels=("target", "role"))
    age = GaugeMetricFamily(
        "inferostat_target_scrape_age_seconds", "Seconds since the last good body.", labels=("target", "role")
    )
    for target in frame.targets:
        labels = (target.name, target.role.value)
        up.add_metric(labels, float(target.up))
        if target.scraped_at is not None:
            age.add_metric(labels, now - target.scraped_at)
    yield up
    yield age


def _signal_states(frame: Frame) -> Metric:
    family = GaugeMetricFamily(
        "inferostat_signal_state", "Signals of a row by state; states with none are left out.",
        labels=("level", "target", "state"),
    )  # fmt: skip
    tables: tuple[tuple[str, Table], ...] = (
        ("endpoint", frame.endpoints), ("device", frame.devices), ("route", frame.routes),
    )  # fmt: skip
    for level, table in tables:
        for index, row in enumerate(table.rows):
            states = [int(state) for state in table.state[index]]
            states += [int(column[index]) for column in table.histogram_state.values()]
            for state, count in sorted(Tally(states).items()):
                family.add_metric((level, row, SignalState(state).name.lower()), float(count))
    return family


def _analysis(analysis: Analysis) -> Iterator[Metric]:
    findings = GaugeMetricFamily(
        "inferostat_finding_active", "1 while a finding holds.", labels=("slug", "severity", "scope")
    )
    for slug, severity, scope in sorted({(f.slug, f.severity, str(f.scope)) for f in analysis.findings}):
        findings.add_metric((slug, severity.name.lower(), scope), 1.0)
    measures = GaugeMetricFamily("inferostat_measure", "Every derived number that is known.", labels=("name", "scope"))
    pools = {name: GaugeMetricFamily(metric, text, labels=("pool",)) for name, (metric, text) in POOL_METRICS.items()}
    for measure in {(m.name, m.scope): m for m in analysis.measures}.values():
        if (value := measure.known) is None:
            continue
        measures.add_metric((measure.name, str(measure.scope)), value)
        if measure.scope.kind is ScopeKind.POOL and measure.name in pools:
            pools[measure.name].add_metric((measure.scope.name,), value)
    yield findings
    yield measures
    yield from pools.values()


def _levers(readings: tuple[LeverReading, ...]) -> Metric:
    """A lever without a limit (None) has no series: there is no number that means "off"."""
    family = GaugeMetricFamily(
        "inferostat_lever_value", "Value in force, as read back from the system.", labels=("lever", "target")
    )
    for reading in {reading.key: reading for reading in readings}.values():
        if reading.known and reading.value is not None:
            family.add_metric((reading.key.lever.value, reading.key.target), reading.value)
    return family
