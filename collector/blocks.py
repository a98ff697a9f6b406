"""Arrays of a few ticks of one level. A history is a list of blocks: nothing is ever moved to make room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from collector.counters import BoolArray, Mark
from collector.model import FloatArray, SignalState, StateArray
from collector.packed import PackedHistograms

# Times that differ by less are one sample: `at - age_s` is computed anew on each tick and rounds.
SAME_SAMPLE_S = 1e-3
TICKS = 32
_NONE = int(Mark.NONE)

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class Window:
    """Ticks of one column, oldest first, all (W, R) over the asked rows.

    ticks (W,): running numbers; at (W,): times of the frames; times: of the samples, -inf without one.
    value: as read; total: increments so far, so that a difference of two is an increase, restarts included.
    """

    ticks: NDArray[np.intp]
    at: FloatArray
    times: FloatArray
    value: FloatArray
    total: FloatArray
    mark: StateArray

    def sampled_since(self, start: float) -> BoolArray:
        """Cells with a new sample taken at or after `start`."""
        sampled: BoolArray = (self.mark != _NONE) & (self.times >= start - SAME_SAMPLE_S)
        return sampled


@dataclass(frozen=True)
class Cells:
    """One tick's cells, all (C, R)."""

    value: FloatArray
    total: FloatArray
    age_s: FloatArray
    state: StateArray
    mark: StateArray


@dataclass(frozen=True)
class Held:
    """Histograms of one tick, with where each row stands in them."""

    index: Mapping[str, int]
    histograms: Mapping[str, PackedHistograms]


class Slots:
    """Where rows stand in a block's arrays. in_order: slots 0, 1, 2, ..., which need no gathering."""

    def __init__(self, index: Sequence[int]) -> None:
        self.index = np.array(index, dtype=np.intp)
        self.needed = max(index, default=-1) + 1
        self.in_order = list(index) == list(range(len(index)))


class Block:
    """Up to `TICKS` ticks from running number `first` on, for `columns` x `slots` cells.

    Arrays are (columns, ticks, slots), so that a window of one signal over all rows is contiguous.
    """

    def __init__(self, first: int, columns: int, slots: int) -> None:
        self.first, self.size = first, 0
        self.columns, self.slots = columns, slots
        shape = (columns, TICKS, slots)
        self.at = np.full(TICKS, np.nan)
        self.value, self.total = np.full(shape, np.nan), np.zeros(shape)
        self.age_s = np.full(shape, np.inf, dtype=np.float32)
        self.state = np.full(shape, SignalState.NEVER_SEEN, dtype=np.uint8)
        self.mark = np.full(shape, Mark.NONE, dtype=np.uint8)
        self.newest = -np.inf  # time of the last tick written
        self.held: list[Held] = []

    def fits(self, columns: int, slots: int) -> bool:
        return self.size < TICKS and columns <= self.columns and slots <= self.slots

    def write(self, at: float, columns: NDArray[np.intp], slots: NDArray[np.intp], cells: Cells) -> None:
        """Append one tick; cells of other columns and slots stay unseen."""
        here = np.ix_(columns, slots)
        for array, new in (
            (self.value, cells.value),
            (self.total, cells.total),
            (self.age_s, cells.age_s),
            (self.state, cells.state),
            (self.mark, cells.mark),
        ):
            array[:, self.size][here] = new
        self.at[self.size] = self.newest = at
        self.size += 1

    def between(self, start: float, end: float) -> slice:
        """Positions of the ticks with start <= at <= end."""
        if not self.size or self.newest < start - SAME_SAMPLE_S:
            return slice(self.size, self.size)
        at = self.at[: self.size]
        low = int(np.searchsorted(at, start - SAME_SAMPLE_S, side="left"))
        return slice(low, int(np.searchsorted(at, end + SAME_SAMPLE_S, side="right")))

    def take(self, part: NDArray[_Number], column: int, ticks: slice, slots: Slots, missing: float) -> NDArray[_Number]:
        """(W, R) of one array of this block; `missing` where the block is older than the column or row."""
        if column < self.columns and slots.needed <= self.slots:
            whole = part[column, ticks]
            return whole[:, : slots.index.size] if slots.in_order else whole.take(slots.index, axis=1)
        taken = np.full((ticks.stop - ticks.start, slots.index.size), missing, dtype=part.dtype)
        inside = slots.index < self.slots
        if column < self.columns:
            taken[:, inside] = part[column, ticks].take(slots.index[inside], axis=1)
        return taken
