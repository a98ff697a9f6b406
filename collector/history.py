"""Windows over frames: counters to rates, gauges to means and slopes, histograms to deltas.

A window of `window_s` seconds holds the usable samples taken in [latest.at - window_s, latest.at]; the sample
just before the window is not used. A sample's time is `frame.at - age_s`, so a value that is carried over
because a scrape failed is the same sample again and counts once. Nothing is extrapolated to the window's
edges: a rate is the increase between the first and the last sample divided by the time between them.

A rate needs three samples over at least half of the window (else WARMING): with two, one odd interval is the
whole answer, and less than half of the window would be the number of another, shorter window. It is also
unknown when the latest cell is (for the same reason), when the counter fell in the window and nothing proves
a restart (RESET), and when it did so more than once in `inconsistent_window_s` (INCONSISTENT: as if read from
several processes in turn). `collector.counters` says what proves a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collector import windows
from collector.blocks import Window
from collector.catalog import signals
from collector.counters import Mark
from collector.model import (
    UNSEEN,
    Cell,
    FloatArray,
    Frame,
    Histogram,
    Kind,
    Level,
    SignalState,
    StateArray,
    Table,
)
from collector.store import Store

# Plain numbers, as in collector.windows.
_KNOWN, _IDLE, _INCONSISTENT = int(SignalState.KNOWN), int(SignalState.IDLE), int(SignalState.INCONSISTENT)
_FALL, _CUT = int(Mark.FALL), int(Mark.CUT)
_Compute = Callable[[Window, float], tuple[FloatArray, StateArray]]


@dataclass(frozen=True)
class Column:
    """One derived number per row of a table. value: (R,) NaN where unusable; state: (R,)."""

    rows: tuple[str, ...]
    value: FloatArray
    state: StateArray

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {row: index for index, row in enumerate(self.rows)}

    def cell(self, row: str) -> Cell:
        """The row's number and state; NEVER_SEEN for a row that is not there."""
        index = self._index.get(row)
        if index is None:
            return UNSEEN
        return Cell(float(self.value[index]), SignalState(int(self.state[index])))


@dataclass(frozen=True)
class Counted:
    """Observations of one histogram per row of a table. count, sum: (R,) NaN where they cannot be told."""

    rows: tuple[str, ...]
    count: FloatArray
    sum: FloatArray

    def total(self, names: Collection[str]) -> tuple[float, float]:
        """Number and sum of the observations of all `names` that are known."""
        asked = np.array([row in names for row in self.rows], dtype=np.bool_)
        known = asked & np.isfinite(self.count)
        return float(self.count[known].sum()), float(self.sum[known].sum())


@dataclass(frozen=True)
class Samples:
    """Usable samples of one series in a window, oldest first. times: (N,) unix s; values: (N,)."""

    times: FloatArray
    values: FloatArray


class History:
    """Frames of the last `retention_s` seconds, in arrays that grow to the fleet and forget gone rows.

    Derived columns are remembered until the next `append`, so that analyzers may ask for the same twice.
    """

    def __init__(self, retention_s: float = 1800.0, inconsistent_window_s: float = 300.0) -> None:
        self._retention_s = retention_s
        self._inconsistent_window_s = inconsistent_window_s
        self._start()

    def _start(self) -> None:
        self._stores = {level: Store(level, _counters(level), self._retention_s) for level in Level}
        self._latest: Frame | None = None
        self._columns: dict[tuple[str, Level, str, float], Column] = {}
        self._fall_counts: dict[tuple[Level, str, float], NDArray[np.intp]] = {}
        self._histogram_ends: dict[tuple[Level, str, float, float], tuple[NDArray[np.intp], NDArray[np.intp]]] = {}

    def append(self, frame: Frame) -> None:
        """Take the next tick. The same tick again changes nothing; a clock set back starts a new history."""
        if self._latest is not None:
            if frame.at == self._latest.at:
                return
            if frame.at < self._latest.at:
                self._start()
        for level, table in _tables(frame).items():
            self._stores[level].append(table, frame.at)
        self._latest = frame
        self._columns.clear()
        self._fall_counts.clear()
        self._histogram_ends.clear()

    @property
    def latest(self) -> Frame | None:
        return self._latest

    def span_s(self) -> float:
        """Seconds between the oldest and the newest frame held."""
        return self._stores[Level.ENDPOINT].span_s()

    def rate(self, level: Level, signal: str, window_s: float) -> Column:
        """Per-second rate of a counter over the last window (rows = latest frame's rows).

        Of a histogram's name: observations per second.
        """
        return self._derived(windows.rate, level, signal, window_s)

    def increase(self, level: Level, signal: str, window_s: float) -> Column:
        """What `rate` divides: the counter's increase between the window's first and last sample."""
        return self._derived(windows.increase, level, signal, window_s)

    def mean(self, level: Level, signal: str, window_s: float) -> Column:
        """Mean of the window's samples, each counted alike."""
        return self._derived(windows.mean, level, signal, window_s)

    def minimum(self, level: Level, signal: str, window_s: float) -> Column:
        """Lowest of the window's samples."""
        return self._derived(windows.minimum, level, signal, window_s)

    def maximum(self, level: Level, signal: str, window_s: float) -> Column:
        """Highest of the window's samples."""
        return self._derived(windows.maximum, level, signal, window_s)

    def slope(self, level: Level, signal: str, window_s: float) -> Column:
        """Least-squares slope of a gauge, units per second; WARMING below 3 samples."""
        return self._derived(windows.slope, level, signal, window_s)

    def delta(self, level: Level, row: str, signal: str, window_s: float, ending_s: float = 0.0) -> Histogram | None:
        """Observations of one histogram in the window that ends `ending_s` seconds before the latest frame.

        Between the oldest and the newest sample of that window; after a proven restart inside it, all that
        the new process observed. None with fewer than two samples, when the histogram is not usable at the
        window's end, or when it fell there and nothing proves a restart.
        """
        store = self._stores[level]
        if self._latest is None or not store.has(signal) or row not in store.row_index:
            return None
        index = store.row_index[row]
        oldest, newest = (int(ends[index]) for ends in self._ends(level, signal, window_s, ending_s))
        if newest < 0:
            return None
        last = store.histogram(newest, row, signal)
        if oldest < 0 or last is None:
            return last
        first = store.histogram(oldest, row, signal)
        return last.minus(first) if first is not None else None

    def counted(self, level: Level, signal: str, window_s: float, ending_s: float = 0.0) -> Counted:
        """Number and sum of the observations that `delta` has, of all rows at once; NaN where there is no delta."""
        store = self._stores[level]
        if self._latest is None or not store.has(signal):
            unknown = np.full(len(store.rows), np.nan)
            return Counted(store.rows, unknown, unknown)
        return Counted(store.rows, *store.counted(*self._ends(level, signal, window_s, ending_s), signal))

    def samples(self, level: Level, row: str, signal: str, window_s: float) -> Samples:
        """What the rows were read as; a counter's samples are totals, resets and all."""
        store = self._stores[level]
        if self._latest is None or not store.has(signal) or row not in store.row_index:
            return Samples(np.empty(0), np.empty(0))
        start = self._latest.at - window_s
        window = store.window(signal, start, self._latest.at, row)
        held = window.sampled_since(start)
        return Samples(window.times[held], window.value[held])

    def counter_state(self, level: Level, row: str, signal: str) -> SignalState:
        """Whether a counter can be trusted: its latest state, RESET or INCONSISTENT after unproven falls."""
        store = self._stores[level]
        if self._latest is None or not store.has(signal) or row not in store.row_index:
            return SignalState.NEVER_SEEN
        index = store.row_index[row]
        latest = SignalState(int(store.states(signal, self._latest.at)[index]))
        if not latest.usable:
            return latest
        falls = int(self._falls(level, signal, self._latest.at)[index])
        if falls > 1:
            return SignalState.INCONSISTENT
        return SignalState.RESET if falls else latest

    def _falls(self, level: Level, signal: str, end: float) -> NDArray[np.intp]:
        """(R,) how often the counter fell unproven in the inconsistency window up to `end`."""
        key = (level, signal, end)
        if key not in self._fall_counts:
            marks = self._stores[level].marks(signal, end - self._inconsistent_window_s, end)
            falls = (marks == _FALL) | (marks == _CUT)
            self._fall_counts[key] = falls.sum(axis=0, dtype=np.intp)
        return self._fall_counts[key]

    def _derived(self, compute: _Compute, level: Level, signal: str, window_s: float) -> Column:
        key = (compute.__name__, level, signal, window_s)
        if key not in self._columns:
            self._columns[key] = self._compute(compute, level, signal, window_s)
        return self._columns[key]

    def _compute(self, compute: _Compute, level: Level, signal: str, window_s: float) -> Column:
        store = self._stores[level]
        if self._latest is None or not store.has(signal):
            never = np.full(len(store.rows), SignalState.NEVER_SEEN, dtype=np.uint8)
            return Column(store.rows, np.full(len(store.rows), np.nan), never)
        end, start = self._latest.at, self._latest.at - window_s
        value, state = compute(store.window(signal, start, end), start)
        if compute in (windows.rate, windows.increase):
            state[self._falls(level, signal, end) > 1] = _INCONSISTENT
        latest = store.states(signal, end)
        # A derived number is as good as the cell it ends in: IDLE stays IDLE, unknown keeps its reason.
        overruled = (latest > _IDLE) | ((latest == _IDLE) & (state == _KNOWN))
        state[overruled] = latest[overruled]
        value[state > _IDLE] = np.nan
        return Column(store.rows, value, state)

    def _ends(
        self, level: Level, signal: str, window_s: float, ending_s: float
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """`windows.histogram_ends` of the window, newest -1 too where the cell or counter is unusable."""
        key = (level, signal, window_s, ending_s)
        if key not in self._histogram_ends:
            assert self._latest is not None
            store, end = self._stores[level], self._latest.at - ending_s
            oldest, newest = windows.histogram_ends(store.window(signal, end - window_s, end), end - window_s)
            unusable = (store.states(signal, end) > _IDLE) | (self._falls(level, signal, end) > 1)
            self._histogram_ends[key] = (oldest, np.where(unusable, -1, newest))
        return self._histogram_ends[key]


def _counters(level: Level) -> frozenset[str]:
    """Signals that only grow: counters, and histograms by their count."""
    growing = (Kind.COUNTER, Kind.HISTOGRAM)
    return frozenset(
        name for name, entry in signals().items() if entry.signal.level is level and entry.signal.kind in growing
    )


def _tables(frame: Frame) -> dict[Level, Table]:
    return {Level.ENDPOINT: frame.endpoints, Level.DEVICE: frame.devices, Level.ROUTE: frame.routes}
