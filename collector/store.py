"""One level's samples over time: blocks that follow the fleet, and what each cell's last sample was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collector.blocks import SAME_SAMPLE_S, Block, Cells, Held, Slots, Window
from collector.counters import BoolArray, LastSamples, Mark, classify
from collector.model import FloatArray, Histogram, Level, SignalState, StateArray, Table
from collector.packed import PackedHistograms, pack

_START = "process_start_time"
_GATEWAY = "gateway_"


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

    def _pieces(self, start: float, end: float) -> Iterator[tuple[Block, slice]]:
        for block in self._blocks:
            ticks = block.between(start, end)
            if ticks.stop > ticks.start:
                yield block, ticks

    def window(self, column: str, start: float, end: float, row: str | None = None) -> Window:
        """Ticks with start <= at <= end of one column, over the newest tick's rows or one of them."""
        c = self._columns[column]
        slots = self._row_slots if row is None else Slots([self._slots[row]])
        nothing = np.empty((0, slots.index.size))
        ticks, at = [np.empty(0, dtype=np.intp)], [np.empty(0)]
        times, value, total, mark = [nothing], [nothing], [nothing], [nothing.astype(np.uint8)]
        for block, part in self._pieces(start, end):
            ticks.append(block.first + np.arange(part.start, part.stop))
            at.append(block.at[part])
            times.append(block.at[part, None] - block.take(block.age_s, c, part, slots, np.inf))
            value.append(block.take(block.value, c, part, slots, np.nan))
            total.append(block.take(block.total, c, part, slots, 0.0))
            mark.append(block.take(block.mark, c, part, slots, Mark.NONE))
        return Window(
            np.concatenate(ticks),
            np.concatenate(at),
            np.concatenate(times),
            np.concatenate(value),
            np.concatenate(total),
            np.concatenate(mark),
        )

    def marks(self, column: str, start: float, end: float) -> StateArray:
        """(W, R) marks of the ticks with start <= at <= end."""
        c, slots = self._columns[column], self._row_slots
        pieces = self._pieces(start, end)
        marks = [block.take(block.mark, c, part, slots, Mark.NONE) for block, part in pieces]
        return np.concatenate([np.empty((0, slots.index.size), dtype=np.uint8), *marks])

    def states(self, column: str, end: float) -> StateArray:
        """(R,) states at the newest tick at or before `end`, NEVER_SEEN where there is no such tick."""
        c, slots, never = self._columns[column], self._row_slots, SignalState.NEVER_SEEN
        for block in reversed(self._blocks):
            last = block.between(-np.inf, end).stop
            if last:
                states: StateArray = block.take(block.state, c, slice(last - 1, last), slots, never)[0]
                return states
        return np.full(slots.index.size, never, dtype=np.uint8)

    def histogram(self, tick: int, row: str, signal: str) -> Histogram | None:
        """The histogram of one row as it was read at the tick with this running number."""
        block = self._blocks[bisect_right(self._blocks, tick, key=lambda block: block.first) - 1]
        held = block.held[tick - block.first]
        if row not in held.index or signal not in held.histograms:
            return None
        return held.histograms[signal].row(held.index[row])


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
