"""Nouns of sensing: signals, their states, histograms, tables and the frame of one tick.

Everything here is a plain value. A table is columnar: `value`, `state` and `age_s` are arrays of shape
(rows, columns), so that a fleet of hundreds of endpoints costs a few array operations, not objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
StateArray = NDArray[np.uint8]


class SignalState(IntEnum):
    """Why a value may or may not be used. Only KNOWN and IDLE carry a number."""

    KNOWN = 0
    IDLE = 1  # the target answers and its request counter is flat: the number is real and means "no work"
    STALE = 2  # last sample is older than the freshness limit
    NEVER_SEEN = 3  # the family never appeared on this target
    MISSING = 4  # the family was there before, or is there without a valid sample
    INVALID = 5  # sentinel, NaN or out of the catalog's range
    CONFLICT = 6  # the same series appears twice with different values
    WARMING = 7  # derived: too few samples in the window yet
    RESET = 8  # derived: the counter fell inside the window and nothing proves a restart
    INCONSISTENT = 9  # derived: the counter falls again and again, as if read from several processes

    @property
    def usable(self) -> bool:
        return self <= SignalState.IDLE

    @property
    def label(self) -> str:
        """`known`, `idle` or `unknown(<reason>)`, as shown to people."""
        return self.name.lower() if self.usable else f"unknown({self.name.lower()})"


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Level(StrEnum):
    """Which table of the frame a signal belongs to."""

    ENDPOINT = "endpoint"
    DEVICE = "device"
    ROUTE = "route"


@dataclass(frozen=True, slots=True)
class Signal:
    """A canonical signal. `name` may carry a part after a dot (`requests_by_finish_reason.stop`)."""

    name: str
    kind: Kind
    unit: str
    level: Level
    help: str


class Censor(StrEnum):
    NONE = "none"
    BELOW = "below"  # the true value is at or below `value` (first bucket)
    ABOVE = "above"  # the true value is at or above `value` (last finite bucket)


@dataclass(frozen=True, slots=True)
class Quantile:
    value: float
    censor: Censor = Censor.NONE

    def exceeds(self, limit: float) -> bool | None:
        """Whether the quantile is above `limit`; None where the buckets cannot tell."""
        if self.censor is Censor.ABOVE:
            return True if self.value >= limit else None
        if self.censor is Censor.BELOW:
            return False if self.value <= limit else None
        return self.value > limit

    def compare(self, other: Quantile) -> int | None:
        """-1, 0 or 1 as this quantile is below, at or above `other`; None: censoring allows no verdict."""
        if self.censor is Censor.NONE and other.censor is Censor.NONE:
            return (self.value > other.value) - (self.value < other.value)
        lowest, highest = self._range()
        other_lowest, other_highest = other._range()
        if lowest > other_highest:
            return 1
        return -1 if highest < other_lowest else None

    def _range(self) -> tuple[float, float]:
        below, above = self.censor is Censor.BELOW, self.censor is Censor.ABOVE
        return (float("-inf") if below else self.value, float("inf") if above else self.value)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative buckets: `counts[i]` observations at or below `bounds[i]`; the last bound is +Inf."""

    bounds: FloatArray
    counts: FloatArray
    sum: float

    @property
    def count(self) -> float:
        return float(self.counts[-1]) if self.counts.size else 0.0

    def mean(self) -> float | None:
        return self.sum / self.count if self.count > 0 else None

    def minus(self, earlier: Histogram) -> Histogram | None:
        """Observations since `earlier`; None when buckets changed or a count fell (a reset)."""
        if not np.array_equal(self.bounds, earlier.bounds):
            return None
        delta = self.counts - earlier.counts
        if np.any(delta < 0) or np.any(np.diff(delta) < 0):
            return None
        return Histogram(self.bounds, delta, self.sum - earlier.sum)

    def plus(self, other: Histogram) -> Histogram | None:
        """Merged observations; None when the buckets differ (they cannot be merged exactly)."""
        if not np.array_equal(self.bounds, other.bounds):
            return None
        return Histogram(self.bounds, self.counts + other.counts, self.sum + other.sum)

    def quantile(self, q: float) -> Quantile | None:
        """Linear interpolation inside the bucket, as Prometheus does; censored in the outer buckets."""
        if self.count <= 0:
            return None
        index = int(np.searchsorted(self.counts, q * self.count, side="left"))
        index = min(index, self.counts.size - 1)
        upper = float(self.bounds[index])
        if not np.isfinite(upper):
            finite = self.bounds[np.isfinite(self.bounds)]
            return Quantile(float(finite[-1]) if finite.size else 0.0, Censor.ABOVE)
        if index == 0:
            return Quantile(upper, Censor.BELOW)
        below, lower = float(self.counts[index - 1]), float(self.bounds[index - 1])
        inside = float(self.counts[index]) - below
        share = (q * self.count - below) / inside if inside > 0 else 1.0
        return Quantile(lower + (upper - lower) * share)

    def share_at_most(self, bound: float) -> tuple[float, float] | None:
        """Lower and upper bound of the share of observations at or below `bound`; equal on an edge."""
        if self.count <= 0:
            return None
        at_or_below = np.flatnonzero(self.bounds <= bound)
        low = float(self.counts[at_or_below[-1]]) if at_or_below.size else 0.0
        if at_or_below.size and self.bounds[at_or_below[-1]] == bound:
            return low / self.count, low / self.count
        high = float(self.counts[int(np.searchsorted(self.bounds, bound, side="left"))])
        return low / self.count, high / self.count


@dataclass(frozen=True, slots=True)
class Cell:
    """One value with its state; `value` is NaN unless the state is usable."""

    value: float
    state: SignalState
    age_s: float = 0.0

    @property
    def known(self) -> float | None:
        """The number, or None where there is none."""
        return self.value if self.state.usable else None


UNSEEN = Cell(float("nan"), SignalState.NEVER_SEEN, float("inf"))


@dataclass(frozen=True)
class Table:
    """Rows x columns of scalar signals, and per-row histograms beside them.

    value: (R, C) NaN where unusable; state: (R, C) SignalState; age_s: (R, C) seconds since the sample.
    histograms: signal -> R entries, None where the row has none; their state is in `histogram_state`.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: FloatArray
    state: StateArray
    age_s: FloatArray
    histograms: Mapping[str, Sequence[Histogram | None]] = field(default_factory=dict)
    histogram_state: Mapping[str, StateArray] = field(default_factory=dict)

    @classmethod
    def empty(cls, rows: Sequence[str], columns: Sequence[str]) -> Table:
        """All cells NEVER_SEEN; the arrays are fresh and may be filled by the builder."""
        shape = (len(rows), len(columns))
        return cls(
            tuple(rows),
            tuple(columns),
            np.full(shape, np.nan),
            np.full(shape, SignalState.NEVER_SEEN, dtype=np.uint8),
            np.full(shape, np.inf),
        )

    def cell(self, row: str, column: str) -> Cell:
        if row not in self.rows or column not in self.columns:
            return UNSEEN
        r, c = self.rows.index(row), self.columns.index(column)
        return Cell(float(self.value[r, c]), SignalState(int(self.state[r, c])), float(self.age_s[r, c]))

    def column(self, name: str) -> FloatArray:
        """Values of one column, NaN where not usable; all NaN when there is no such column."""
        if name not in self.columns:
            return np.full(len(self.rows), np.nan)
        c = self.columns.index(name)
        return np.where(self.state[:, c] <= SignalState.IDLE, self.value[:, c], np.nan)

    def histogram(self, row: str, name: str) -> Histogram | None:
        values = self.histograms.get(name)
        if values is None or row not in self.rows:
            return None
        return values[self.rows.index(row)]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One serving replica. `address` (host:port) is how the gateway names it."""

    name: str
    pool: str
    url: str
    address: str
    gpus: int = 1
    product: str | None = None
    version: str | None = None
    model: str | None = None
    build: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU; `endpoint` is the replica that runs on it, None when not known."""

    name: str
    endpoint: str | None
    pool: str | None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One gateway's way into a pool: `name` is the gateway's cluster."""

    name: str
    gateway: str
    pool: str


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    endpoints: tuple[str, ...]


class TargetRole(StrEnum):
    ENGINE = "engine"
    GPU = "gpu"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """What the last attempt to read a target gave. `error` says expected, found and what to do."""

    name: str
    role: TargetRole
    url: str
    up: bool
    error: str | None = None
    failing_since: float | None = None
    scraped_at: float | None = None  # time of the last good body
    duration_s: float | None = None
    product: str | None = None
    warnings: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()  # signals seen before on this target and now gone


@dataclass(frozen=True)
class Frame:
    """One tick. Counters are totals as read; rates are history's work."""

    at: float
    endpoints: Table
    devices: Table
    routes: Table
    topology: Topology
    targets: tuple[TargetStatus, ...] = ()


@dataclass(frozen=True)
class Topology:
    """Who is who: keyed by the row names of the frame's tables."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)

    def pool_routes(self, pool: str) -> tuple[str, ...]:
        return tuple(name for name, route in self.routes.items() if route.pool == pool)

    def pool_devices(self, pool: str) -> tuple[str, ...]:
        return tuple(name for name, device in self.devices.items() if device.pool == pool)
