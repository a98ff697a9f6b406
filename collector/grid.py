"""Where the cells of one level stand, and what they hold before any number is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collector.model import Level, SignalState, StateArray
from collector.plan import Cell, CellId, Plan

_SAMPLE_SUFFIXES = ("", "_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class ComplexCell:
    """A cell that array operations cannot fill. `position`: its column, or which histogram it is."""

    row: int
    position: int
    cell: Cell
    gap: str | None  # an unreadable line of its family: a part is not known, so no total is


@dataclass(frozen=True)
class Grid:
    """One level. `simple_cells` are flat positions in (rows, columns), filled from `simple_slots`."""

    level: Level
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    histograms: tuple[str, ...]
    labels: tuple[Mapping[str, str], ...]
    state: StateArray  # (rows, columns)
    histogram_state: StateArray  # (histograms, rows)
    reasons: dict[tuple[int, str], str] = field(default_factory=dict)
    simple_slots: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    simple_cells: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    simple_histograms: tuple[tuple[int, int, int], ...] = ()  # (which histogram, row, part)
    complex: tuple[ComplexCell, ...] = ()
    constants: tuple[tuple[int, int, float], ...] = ()  # (row, column, value)


def grids(plan: Plan, seen: frozenset[CellId]) -> tuple[Grid, ...]:
    """One grid for each level the target has rows at."""
    return tuple(_GridBuilder(plan, level, seen).build() for level in plan.product.rows if plan.rows(level))


class _GridBuilder:
    def __init__(self, plan: Plan, level: Level, seen: frozenset[CellId]) -> None:
        self._plan, self._level, self._seen = plan, level, seen
        self._rows = plan.rows(level)
        signals = plan.product.of_level(level)
        self._columns = tuple(signal.name for signal in signals if not signal.entry.is_histogram)
        self._histograms = tuple(signal.name for signal in signals if signal.entry.is_histogram)
        self._position = {row: n for n, row in enumerate(self._rows)}
        self._place = {name: n for names in (self._columns, self._histograms) for n, name in enumerate(names)}
        never = SignalState.NEVER_SEEN
        self._state = np.full((len(self._rows), len(self._columns)), never, dtype=np.uint8)
        self._histogram_state = np.full((len(self._histograms), len(self._rows)), never, dtype=np.uint8)
        self._reasons: dict[tuple[int, str], str] = {}

    def build(self) -> Grid:
        slots: list[int] = []
        cells: list[int] = []
        simple_histograms: list[tuple[int, int, int]] = []
        complex_cells: list[ComplexCell] = []
        for row, name, cell in self._cells():
            choice, place = cell.choices[0], self._place[name]
            gap = self._gap(cell)
            alone = len(cell.choices) == 1 and cell.signal.levels is None and gap is None
            if alone and len(choice.slots) == 1 and not choice.buckets:
                slots.append(choice.slots[0])
                cells.append(row * len(self._columns) + place)
            elif alone and len(choice.buckets) == 1:
                simple_histograms.append((place, row, choice.buckets[0]))
            else:
                complex_cells.append(ComplexCell(row, place, cell, gap))
        constants = self._constants()
        self._explain_absence()
        return Grid(
            level=self._level,
            rows=self._rows,
            columns=self._columns,
            histograms=self._histograms,
            labels=tuple(self._plan.row_labels[self._level, row] for row in self._rows),
            state=self._state,
            histogram_state=self._histogram_state,
            reasons=self._reasons,
            simple_slots=np.array(slots, dtype=np.intp),
            simple_cells=np.array(cells, dtype=np.intp),
            simple_histograms=tuple(simple_histograms),
            complex=tuple(complex_cells),
            constants=constants,
        )

    def _cells(self) -> list[tuple[int, str, Cell]]:
        return [
            (self._position[row], name, cell)
            for (level, row, name), cell in self._plan.cells.items()
            if level is self._level
        ]

    def _constants(self) -> tuple[tuple[int, int, float], ...]:
        found = []
        for (level, row, name), constant in self._plan.constants.items():
            if level is not self._level:
                continue
            place = (self._position[row], self._place[name])
            self._state[place] = constant.state
            found.append((*place, constant.value))
            if constant.reason is not None:
                self._reasons[self._position[row], name] = constant.reason
        return tuple(found)

    def _gap(self, cell: Cell) -> str | None:
        keys = (choice.family.key + suffix for choice in cell.choices for suffix in _SAMPLE_SUFFIXES)
        return next((self._plan.incomplete[key] for key in keys if key in self._plan.incomplete), None)

    def _explain_absence(self) -> None:
        """State and reason of each cell that has no series at all."""
        for signal in self._plan.product.of_level(self._level):
            names = " or ".join(dict.fromkeys(family.name for family in signal.families))
            where = "".join(f' {label}="{"|".join(texts)}"' for label, texts in signal.where.items())
            declared = any(family.key in self._plan.declared for family in signal.families)
            for n, row in enumerate(self._rows):
                cell = (self._level, row, signal.name)
                if cell in self._plan.cells or cell in self._plan.constants:
                    continue
                if cell in self._seen:
                    state, reason = SignalState.MISSING, f"{names}{where} was there before and is gone"
                elif declared:
                    state, reason = SignalState.MISSING, f"{names} is declared but has no sample yet"
                else:
                    state, reason = SignalState.NEVER_SEEN, f"no {names}{where} so far"
                self._reasons[n, signal.name] = reason
                if signal.entry.is_histogram:
                    self._histogram_state[self._place[signal.name], n] = state
                else:
                    self._state[n, self._place[signal.name]] = state
