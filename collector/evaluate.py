"""From a plan and a body's numbers to rows of cells: the part of reading that runs on every scrape.

Cells with one family and one part, nearly all of them, are filled by a handful of array operations; the rest
(ranks, renamed twins, one-hot states) one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

import numpy as np

from collector.aggregation import Value, aggregate, merge, same, shown
from collector.catalog import Aggregate
from collector.grid import ComplexCell, Grid, grids
from collector.model import FloatArray, Histogram, Level, SignalState
from collector.parts import PartReader, Parts
from collector.plan import Cell, CellId, Choice, Plan
from collector.rows import Rows


@dataclass(frozen=True)
class Evaluation:
    rows: dict[Level, Rows]
    parts: Parts
    warnings: tuple[str, ...]


class Evaluator:
    """A plan made ready. `seen`: cells this target has had before, so that their absence is MISSING."""

    def __init__(self, plan: Plan, seen: frozenset[CellId] = frozenset()) -> None:
        self.plan = plan
        self._parts = PartReader(plan)
        self._grids = grids(plan, seen)

    def run(self, values: FloatArray) -> Evaluation:
        """Cells of one body; `values` are the body's numbers in the layout's order."""
        parts = self._parts.read(values)
        warnings = list(parts.warnings)
        rows = {grid.level: self._fill(grid, parts, warnings) for grid in self._grids}
        return Evaluation(rows, parts, tuple(dict.fromkeys(warnings)))

    def _fill(self, grid: Grid, parts: Parts, warnings: list[str]) -> Rows:
        state = grid.state.copy()
        value = np.full(state.shape, np.nan)
        value.flat[grid.simple_cells] = parts.slot_values[grid.simple_slots]
        state.flat[grid.simple_cells] = parts.slot_state[grid.simple_slots]
        for row, column, number in grid.constants:
            value[row, column] = number
        histogram_state = grid.histogram_state.copy()
        histograms: list[list[Histogram | None]] = [[None] * len(grid.rows) for _ in grid.histograms]
        for which, row, part in grid.simple_histograms:
            histograms[which][row] = parts.histograms[part]
            histogram_state[which, row] = parts.histogram_state[part]
        reasons = dict(grid.reasons)
        if not parts.flawless:
            reasons.update(_reasons_of_simple_cells(grid, parts))
        for one in grid.complex:
            outcome = self._outcome(one, parts, warnings)
            if outcome.reason is not None:
                reasons[one.row, one.cell.signal.name] = outcome.reason
            if isinstance(outcome.value, Histogram) or one.cell.signal.entry.is_histogram:
                histogram_state[one.position, one.row] = outcome.state
                histograms[one.position][one.row] = outcome.value if isinstance(outcome.value, Histogram) else None
            else:
                state[one.row, one.position] = outcome.state
                value[one.row, one.position] = np.nan if outcome.value is None else outcome.value
        return Rows(
            rows=grid.rows,
            columns=grid.columns,
            value=value,
            state=state,
            histograms=dict(zip(grid.histograms, histograms, strict=True)),
            histogram_state=dict(zip(grid.histograms, histogram_state, strict=True)),
            labels=grid.labels,
            reasons=reasons,
        )

    def _outcome(self, one: ComplexCell, parts: Parts, warnings: list[str]) -> Value:
        """The value of the first family that has one; its rivals under newer or older names must agree."""
        if one.gap is not None:
            return Value(None, SignalState.INVALID, one.gap)
        cell = one.cell
        outcomes = [self._of_family(cell, choice, parts) for choice in cell.choices]
        usable = [n for n, outcome in enumerate(outcomes) if outcome.state.usable]
        if not usable:
            return outcomes[0]
        chosen = usable[0]
        for rival in usable[1:]:
            renamed = not cell.choices[rival].family.fallback
            if renamed and not same(outcomes[chosen].value, outcomes[rival].value):
                first, second = cell.choices[chosen].family.name, cell.choices[rival].family.name
                values = f"{shown(outcomes[chosen].value)} vs {shown(outcomes[rival].value)}"
                warnings.append(f"{cell.signal.name}: {first} and {second} differ ({values}); the first is used")
        return outcomes[chosen]

    def _of_family(self, cell: Cell, choice: Choice, parts: Parts) -> Value:
        if not cell.signal.entry.is_histogram:
            return self._scalar(cell, choice, parts)
        for n in choice.buckets:
            if n in parts.histogram_reasons:
                return Value(None, SignalState(int(parts.histogram_state[n])), parts.histogram_reasons[n])
        return merge(choice.family.name, [h for n in choice.buckets if (h := parts.histograms[n]) is not None])

    def _scalar(self, cell: Cell, choice: Choice, parts: Parts) -> Value:
        rule = cell.signal.entry.aggregate
        numbers = [parts.slots[n] for n in choice.slots]
        known = [number for number in numbers if not isnan(number)]
        told = f"{len(known)} known of {len(numbers)} parts" if len(known) < len(numbers) else None
        one_hot = cell.signal.levels is not None
        if told is not None and (not known or one_hot or rule is Aggregate.SUM):
            lost = next(n for n in choice.slots if n in parts.slot_reasons)
            reason = parts.slot_reasons[lost] if len(numbers) == 1 else f"{parts.slot_reasons[lost]}; {told}"
            return Value(None, SignalState(int(parts.slot_state[lost])), reason)
        if one_hot:
            known = [self.plan.slots[n].weight for n in choice.slots if parts.slots[n] == 1.0]
            if not known:
                return Value(None, SignalState.INVALID, f"{choice.family.name} has no state set to 1")
        return Value(aggregate(rule, known), SignalState.KNOWN, told)


def _reasons_of_simple_cells(grid: Grid, parts: Parts) -> dict[tuple[int, str], str]:
    reasons: dict[tuple[int, str], str] = {}
    width = len(grid.columns)
    for slot, cell in zip(grid.simple_slots.tolist(), grid.simple_cells.tolist(), strict=True):
        if slot in parts.slot_reasons:
            reasons[cell // width, grid.columns[cell % width]] = parts.slot_reasons[slot]
    for which, row, part in grid.simple_histograms:
        if part in parts.histogram_reasons:
            reasons[row, grid.histograms[which]] = parts.histogram_reasons[part]
    return reasons
