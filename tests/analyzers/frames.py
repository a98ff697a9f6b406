"""Small frames for tests: a mapping a row, and a loop that keeps what a daemon would keep between cycles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzers.model import Analysis, Analyzer, Context, PoolSettings
from analyzers.registry import analyze
from collector.history import History
from collector.model import (
    Device,
    Endpoint,
    Frame,
    Histogram,
    Pool,
    Route,
    SignalState,
    Table,
    TargetRole,
    TargetStatus,
    Topology,
)

Row = Mapping[str, float | Histogram | SignalState]
BOUNDS = np.array([0.001, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 80.0, math.inf])


def histogram(values: Iterable[float], bounds: np.ndarray = BOUNDS) -> Histogram:  # type: ignore[type-arg]
    """A histogram of the given observations."""
    seen = np.sort(np.array(list(values), dtype=np.float64))
    return Histogram(bounds, np.searchsorted(seen, bounds, side="right").astype(np.float64), float(seen.sum()))


def total(mean: float, count: float) -> Histogram:
    """A histogram that holds `count` observations of one value."""
    counts = np.where(mean <= BOUNDS, count, 0.0)
    return Histogram(BOUNDS, counts, mean * count)


def table(rows: Mapping[str, Row]) -> Table:
    """Numbers are known (NaN: invalid), a SignalState stands for itself, an absent signal was never seen."""
    scalars = sorted({k for row in rows.values() for k, v in row.items() if not isinstance(v, Histogram)})
    distributions = sorted({k for row in rows.values() for k, v in row.items() if isinstance(v, Histogram)})
    made = Table.empty(tuple(rows), tuple(scalars))
    for r, row in enumerate(rows.values()):
        for c, name in enumerate(scalars):
            value = row.get(name)
            if value is None or isinstance(value, Histogram):
                continue
            made.age_s[r, c] = 0.0
            if isinstance(value, SignalState):
                made.state[r, c] = value
            elif math.isnan(value):
                made.state[r, c] = SignalState.INVALID
            else:
                made.value[r, c], made.state[r, c] = value, SignalState.KNOWN
    columns = {
        n: [v if isinstance(v := row.get(n), Histogram) else None for row in rows.values()] for n in distributions
    }
    states = {
        n: np.array([SignalState.KNOWN if h is not None else SignalState.NEVER_SEEN for h in column], dtype=np.uint8)
        for n, column in columns.items()
    }
    return replace(made, histograms=columns, histogram_state=states)


def topology(
    endpoints: Iterable[str],
    *,
    routes: Iterable[str] = (),
    devices: Mapping[str, str | None] | None = None,
    pool: str = "default",
    builds: Mapping[str, str] | None = None,
    gpus: int = 1,
) -> Topology:
    names = tuple(endpoints)
    return Topology(
        pools={pool: Pool(pool, names)},
        endpoints={n: Endpoint(n, pool, f"http://{n}", n, gpus=gpus, build=(builds or {}).get(n)) for n in names},
        devices={d: Device(d, owner, pool) for d, owner in (devices or {}).items()},
        routes={r: Route(r, "gateway", pool) for r in routes},
    )


def frame(
    at: float,
    endpoints: Mapping[str, Row] | None = None,
    *,
    routes: Mapping[str, Row] | None = None,
    devices: Mapping[str, Row] | None = None,
    where: Topology | None = None,
    targets: Sequence[TargetStatus] = (),
) -> Frame:
    rows = endpoints or {}
    owners = {device: next(iter(rows), None) for device in devices or {}}
    return Frame(
        at=at,
        endpoints=table(rows),
        devices=table(devices or {}),
        routes=table(routes or {}),
        topology=where if where is not None else topology(rows, routes=routes or (), devices=owners),
        targets=tuple(targets),
    )


def target(
    name: str,
    *,
    up: bool = True,
    error: str | None = None,
    failing_since: float | None = None,
    scraped_at: float | None = 0.0,
    role: TargetRole = TargetRole.ENGINE,
    **other: object,
) -> TargetStatus:
    return TargetStatus(
        name=name,
        role=role,
        url=f"http://{name}",
        up=up,
        error=error,
        failing_since=failing_since,
        scraped_at=scraped_at,
        **other,  # type: ignore[arg-type]
    )


@dataclass
class Loop:
    """Feeds frames to history and analyzers, and hands each cycle what the one before found."""

    settings: PoolSettings = field(default_factory=PoolSettings)
    interval_s: float = 1.0
    pool: str = "default"
    history: History = field(default_factory=History)
    last: Analysis | None = None
    only: Analyzer | None = None  # one analyzer alone, where a test is long and needs no other

    def tick(self, made: Frame) -> Analysis:
        self.history.append(made)
        context = Context(
            pools={self.pool: self.settings},
            interval_s=self.interval_s,
            freshness_s=3 * self.interval_s,
            previous=self.last.findings if self.last else (),
            previous_measures=self.last.measures if self.last else (),
        )
        if self.only is None:
            self.last = analyze(self.history, made, context, made.at)
        else:
            report = self.only(self.history, made, context, made.at)
            self.last = Analysis(made.at, report.findings, report.measures)
        return self.last


def slugs(analysis: Analysis) -> set[str]:
    return {found.slug for found in analysis.findings}
