"""One level's samples over time: blocks that follow the fleet, and what each cell's last sample was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from collector.blocks import SAME_SAMPLE_S, Block, Cells, Held, Slots, Window
from collector.counters import BoolArray, LastSamples, Mark, classify
from collector.model import FloatArray, Histogram, Level, SignalState, StateArray, Table
from collector.packed import PackedHistograms, pack

_START = "process_start_time"
_GATEWAY = "gateway_"

# Plain numbers: looking up an enum's member costs more than what it is used for here.
_NONE, _NEVER_SEEN = int(Mark.NONE), int(SignalState.NEVER_SEEN)
_Number = TypeVar("_Number", bound=np.generic)


class _Part:
    """Ticks of one block that are in a window, with their running numbers and times."""

    __slots__ = ("at", "block", "numbers", "ticks")

    def __init__(self, block: Block, ticks: slice) -> None:
        self.block, self.ticks = block, ticks
        self.numbers = block.first + np.arange(ticks.start, ticks.stop)
        self.at = block.at[ticks]


def _joined(parts: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Store:
    """Samples of one level, kept for at least `retention_s` (whole blocks are dropped).

    Rows keep their slot while retention lasts, so that a row that vanishes and comes back goes on. A
    histogram takes part as a column holding its count; the histogram itself is kept packed.
    """

    def __init__(self, level: Level, counters: frozenset[str], retention_s: float) -> None:
        self._level = level
        self._counters = counters
        self._retention_s = retention_s
        self._columns: dict[str, int] = {}
        self._own: BoolArray = np.zeros(0, dtype=np.bool_)
        self._counting: BoolArray = np.zeros(0, dtype=np.bool_)
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._last_seen: dict[str, float] = {}
        self._rows: tuple[str, ...] = ()
        self._row_slots = Slots(())
        self._row_index: dict[str, int] = {}
        self._blocks: list[Block] = []
        self._packed: Mapping[str, PackedHistograms] = {}  # of the tick before
        self._parts: dict[tuple[float, float], tuple[_Part, ...]] = {}  # until the next tick
        self._last_value = self._last_total = self._last_time = self._last_start = np.empty((0, 0))
        self._start = np.empty(0)

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows of the newest tick."""
        return self._rows

    @property
    def row_index(self) -> Mapping[str, int]:
        """Where each row stands in `rows`."""
        return self._row_index

    def has(self, column: str) -> bool:
        return column in self._columns

    def span_s(self) -> float:
        """Seconds between the oldest and the newest tick held."""
        if not self._blocks:
            return 0.0
        return float(self._blocks[-1].newest - self._blocks[0].at[0])

    def append(self, table: Table, at: float) -> None:
        """Take one tick. `at` is later than that of every tick before."""
        self._parts.clear()
        self._forget(at)
        names = (*table.columns, *table.histograms)
        self._reserve(names, table.rows)
        self._last_seen.update(dict.fromkeys(table.rows, at))
        columns = np.array([self._columns[name] for name in names], dtype=np.intp)
        block = self._blocks[-1]
        packed = {name: pack(values, self._packed.get(name)) for name, values in table.histograms.items()}
        self._packed = packed
        block.held.append(Held(self._row_index, packed))
        block.write(at, columns, self._row_slots.index, self._sample(columns, at, *_cells(table, packed)))

    def _sample(
        self, columns: NDArray[np.intp], at: float, value: FloatArray, state: StateArray, age_s: FloatArray
    ) -> Cells:
        """Judge the tick's cells against each cell's last sample, and make them the last."""
        slots = self._row_slots.index
        cells = np.ix_(columns, slots)
        claimed = state <= SignalState.IDLE
        usable = claimed & np.isfinite(value)
        state = np.where(claimed & ~usable, np.uint8(SignalState.INVALID), state)
        last_time = self._last_time[cells]
        times = np.where(usable, at - age_s, -np.inf)
        sampled = usable & (times > last_time + SAME_SAMPLE_S)
        if _START in self._columns:
            row = np.flatnonzero(columns == self._columns[_START])
            if row.size:
                known = usable[row[0]]
                self._start[slots[known]] = value[row[0]][known]
        start = self._start[slots]
        last = LastSamples(self._last_value[cells], last_time, self._last_start[cells])
        own, counting = self._own[columns], self._counting[columns]
        mark, increment = classify(value, sampled, last, start=start, own=own, counters=counting)
        total = self._last_total[cells] + increment
        self._last_value[cells] = np.where(sampled, value, last.value)
        self._last_time[cells] = np.where(sampled, times, last_time)
        self._last_start[cells] = np.where(sampled, start[None, :], last.start)
        self._last_total[cells] = total
        return Cells(value, total, np.where(usable, age_s, np.inf), state, mark)

    def _forget(self, at: float) -> None:
        """Drop blocks out of retention, and give up the slots of rows that are in none of the others."""
        oldest = at - self._retention_s
        while self._blocks and self._blocks[0].newest < oldest:
            del self._blocks[0]
        if len(self._slots) == len(self._rows):
            return
        first = float(self._blocks[0].at[0]) if self._blocks else at
        for row in [row for row, seen in self._last_seen.items() if seen < first]:
            slot = self._slots.pop(row)
            del self._last_seen[row]
            self._free.append(slot)
            self._last_value[:, slot] = self._last_start[:, slot] = self._start[slot] = np.nan
            self._last_total[:, slot], self._last_time[:, slot] = 0.0, -np.inf

    def _reserve(self, names: Sequence[str], rows: tuple[str, ...]) -> None:
        """A column for each name, a slot for each row, and a block with room for the tick."""
        missing = [name for name in names if name not in self._columns]
        if missing:
            for name in missing:
                self._columns[name] = len(self._columns)
            engine = self._level is Level.ENDPOINT
            self._own = np.array([engine and not name.startswith(_GATEWAY) for name in self._columns], dtype=np.bool_)
            self._counting = np.array([name in self._counters for name in self._columns], dtype=np.bool_)
        if rows != self._rows:
            for row in rows:
                if row not in self._slots:
                    self._slots[row] = self._free.pop() if self._free else len(self._slots)
            self._rows = rows
            self._row_slots = Slots([self._slots[row] for row in rows])
            self._row_index = {row: index for index, row in enumerate(rows)}
        columns, slots = len(self._columns), len(self._slots) + len(self._free)
        self._widen(columns, slots)
        if not self._blocks or not self._blocks[-1].fits(columns, slots):
            first = self._blocks[-1].first + self._blocks[-1].size if self._blocks else 0
            self._blocks.append(Block(first, columns, self._start.size))

    def _widen(self, columns: int, slots: int) -> None:
        """Room for the last samples; a few slots more than asked, so that a growing fleet seldom asks."""
        old_columns, old_slots = self._last_value.shape
        if columns <= old_columns and slots <= old_slots:
            return
        wide = old_slots if slots <= old_slots else slots + max(4, slots // 8)
        pad = ((0, columns - old_columns), (0, wide - old_slots))
        self._last_value = np.pad(self._last_value, pad, constant_values=np.nan)
        self._last_start = np.pad(self._last_start, pad, constant_values=np.nan)
        self._last_time = np.pad(self._last_time, pad, constant_values=-np.inf)
        self._last_total = np.pad(self._last_total, pad)
        self._start = np.pad(self._start, (0, wide - old_slots), constant_values=np.nan)

    def _pieces(self, start: float, end: float) -> tuple[_Part, ...]:
        """The blocks' parts with start <= at <= end, oldest first. Every signal asks for the same few windows."""
        key = (start, end)
        parts = self._parts.get(key)
        if parts is None:
            found: list[_Part] = []
            for block in reversed(self._blocks):
                if block.newest < start - SAME_SAMPLE_S:
                    break
                ticks = block.between(start, end)
                if ticks.stop > ticks.start:
                    found.append(_Part(block, ticks))
            parts = self._parts[key] = tuple(reversed(found))
        return parts

    def window(self, column: str, start: float, end: float, row: str | None = None) -> Window:
        """Ticks with start <= at <= end of one column, over the newest tick's rows or one of them."""
        c = self._columns[column]
        slots = self._row_slots if row is None else Slots([self._slots[row]])
        parts = self._pieces(start, end)
        if not parts:
            nothing = np.empty((0, slots.index.size))
            none = nothing.astype(np.uint8)
            return Window(np.empty(0, dtype=np.intp), np.empty(0), nothing, nothing, nothing, none)
        return Window(
            _joined([part.numbers for part in parts]),
            _joined([part.at for part in parts]),
            _joined([p.at[:, None] - p.block.take(p.block.age_s, c, p.ticks, slots, np.inf) for p in parts]),
            _joined([p.block.take(p.block.value, c, p.ticks, slots, np.nan) for p in parts]),
            _joined([p.block.take(p.block.total, c, p.ticks, slots, 0.0) for p in parts]),
            _joined([p.block.take(p.block.mark, c, p.ticks, slots, _NONE) for p in parts]),
        )

    def marks(self, column: str, start: float, end: float) -> StateArray:
        """(W, R) marks of the ticks with start <= at <= end."""
        c, slots, parts = self._columns[column], self._row_slots, self._pieces(start, end)
        if not parts:
            return np.empty((0, slots.index.size), dtype=np.uint8)
        return _joined([p.block.take(p.block.mark, c, p.ticks, slots, _NONE) for p in parts])

    def states(self, column: str, end: float) -> StateArray:
        """(R,) states at the newest tick at or before `end`, NEVER_SEEN where there is no such tick."""
        c, slots = self._columns[column], self._row_slots
        for block in reversed(self._blocks):
            last = block.size if block.newest <= end else block.between(-np.inf, end).stop
            if last:
                states: StateArray = block.take(block.state, c, slice(last - 1, last), slots, _NEVER_SEEN)[0]
                return states
        return np.full(slots.index.size, _NEVER_SEEN, dtype=np.uint8)

    def counted(self, oldest: NDArray[np.intp], newest: NDArray[np.intp], signal: str) -> tuple[FloatArray, FloatArray]:
        """(R,) number and sum of each row's observations between two of its ticks, both (R,), NaN where not known.

        Oldest -1: all that was observed up to the newest. Newest -1: not known.
        """
        count, total = np.full(oldest.shape, np.nan), np.full(oldest.shape, np.nan)
        for first, last in sorted(set(zip(oldest.tolist(), newest.tolist(), strict=True))):  # hardly ever more than two
            if last < 0:
                continue
            rows = np.flatnonzero((oldest == first) & (newest == last))
            now, at_now = self._packed_at(last, signal, rows)
            if now is None:
                continue
            if first < 0:
                count[rows], total[rows] = now.observed(at_now)
                continue
            before, at_before = self._packed_at(first, signal, rows)
            if before is not None:
                count[rows], total[rows] = now.since(at_now, before, at_before)
        return count, total

    def _packed_at(
        self, tick: int, signal: str, rows: NDArray[np.intp]
    ) -> tuple[PackedHistograms | None, NDArray[np.intp]]:
        """A tick's histograms, and where the newest tick's `rows` stand in them; -1 where they do not."""
        held = self._held(tick)
        if held.index is self._row_index:
            return held.histograms.get(signal), rows
        places = [held.index.get(self._rows[row], -1) for row in rows.tolist()]
        return held.histograms.get(signal), np.array(places, dtype=np.intp)

    def histogram(self, tick: int, row: str, signal: str) -> Histogram | None:
        """The histogram of one row as it was read at the tick with this running number."""
        held = self._held(tick)
        if row not in held.index or signal not in held.histograms:
            return None
        return held.histograms[signal].row(held.index[row])

    def _held(self, tick: int) -> Held:
        block = self._blocks[bisect_right(self._blocks, tick, key=lambda block: block.first) - 1]
        return block.held[tick - block.first]


def _cells(table: Table, packed: Mapping[str, PackedHistograms]) -> tuple[FloatArray, StateArray, FloatArray]:
    """Value, state and age, (columns and histograms, R). A histogram is as old as the row's own samples."""
    value, state, age = table.value.T, table.state.T, table.age_s.T
    if not packed:
        return value, state, age
    own = [i for i, name in enumerate(table.columns) if not name.startswith(_GATEWAY)]
    row_age = age[own].min(axis=0) if own else np.zeros(len(table.rows))
    row_age = np.where(np.isfinite(row_age), row_age, 0.0)
    states = [
        table.histogram_state[name] if name in table.histogram_state else _default_states(column)
        for name, column in table.histograms.items()
    ]
    counted = np.array([each.totals() for each in packed.values()])
    return (
        np.concatenate([value, counted]),
        np.concatenate([state, np.array(states, dtype=np.uint8).reshape(counted.shape)]),
        np.concatenate([age, np.broadcast_to(row_age, counted.shape)]),
    )


def _default_states(column: Sequence[Histogram | None]) -> list[SignalState]:
    return [SignalState.NEVER_SEEN if histogram is None else SignalState.KNOWN for histogram in column]
