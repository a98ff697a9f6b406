"""From a plan and a body's numbers to rows of cells: the part of reading that runs on every scrape.

Cells with one family and one part, nearly all of them, are filled by a handful of array operations; the rest
(ranks, renamed twins, one-hot states) one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collector.catalog import Aggregate
from collector.model import FloatArray, Histogram, Level, SignalState, StateArray
from collector.plan import Cell, CellId, Choice, Plan
from collector.rows import Rows

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Value:
    """One cell's outcome. `value` is a number or histogram where the state is usable."""

    value: float | Histogram | None
    state: SignalState
    reason: str | None = None


@dataclass(frozen=True)
class Parts:
    """Every slot and every histogram part of one body, checked and converted."""

    slots: FloatArray  # canonical unit, NaN where not usable
    slot_state: StateArray
    histograms: Sequence[Histogram | None]
    histogram_state: StateArray
    reasons: dict[tuple[str, int], str]  # ("slot" | "histogram", index) -> why not usable


@dataclass(frozen=True)
class Evaluation:
    rows: dict[Level, Rows]
    parts: Parts
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where one level's cells stand, and what they hold before any number is known."""

    level: Level
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    histograms: tuple[str, ...]
    template: StateArray
    histogram_template: StateArray  # (histograms, rows)
    reasons: dict[tuple[int, str], str]
    labels: tuple[dict[str, str], ...]
    simple_slots: NDArray[np.intp]
    simple_cells: NDArray[np.intp]  # flat positions
    simple_histograms: tuple[tuple[int, int, int], ...]  # (histogram, row, part)
    complex: tuple[tuple[int, str, Cell], ...]  # (row, signal, cell)
    constants: tuple[tuple[int, int, float], ...]  # (row, column, value)


@dataclass
class Evaluator:
    """A plan made ready. `seen`: cells this target has had before, so that their absence is MISSING."""

    plan: Plan
    seen: frozenset[CellId] = frozenset()
    _grids: list[_Grid] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self.plan
        slots = plan.slots
        self._index = np.array([slot.index for slot in slots], dtype=np.intp)
        self._scale = np.array([slot.signal.scale for slot in slots])
        self._low = np.array([slot.signal.low for slot in slots])
        self._high = np.array([slot.signal.high for slot in slots])
        self._slot_twins = [(n, slot.index, t) for n, slot in enumerate(slots) for t in slot.twins]
        self._sentinels = np.array(plan.product.sentinels)
        sizes = [len(part.counts) for part in plan.buckets]
        self._starts = np.cumsum([0, *sizes])
        self._counts = np.array([i for part in plan.buckets for i in part.counts], dtype=np.intp)
        self._inner = np.ones(max(len(self._counts) - 1, 0), dtype=bool)  # steps inside one part
        self._inner[self._starts[1:-1][self._starts[1:-1] < len(self._counts)] - 1] = False
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._sums = np.array([max(part.sum_index, 0) for part in plan.buckets], dtype=np.intp)
        self._sum_scale = np.array([part.signal.scale for part in plan.buckets])
        self._bucket_twins = [(n, a, b) for n, part in enumerate(plan.buckets) for a, b in part.twins]
        self._broken = [(n, part.broken) for n, part in enumerate(plan.buckets) if part.broken]
        self._count_checks = [
            (n, part.counts[-1], part.count_index)
            for n, part in enumerate(plan.buckets)
            if part.count_index is not None and part.counts and part.count_index != part.counts[-1]
        ]
        self._grids = [self._grid(level) for level in plan.product.rows if plan.rows(level)]

    def run(self, values: FloatArray) -> Evaluation:
        warnings: list[str] = []
        parts = self._parts(values, warnings)
        rows = {grid.level: self._fill(grid, parts, warnings) for grid in self._grids}
        return Evaluation(rows, parts, tuple(dict.fromkeys(warnings)))

    def _parts(self, values: FloatArray, warnings: list[str]) -> Parts:
        reasons: dict[tuple[str, int], str] = {}
        raw = values[self._index] if self._index.size else np.empty(0)
        good: BoolArray = (raw >= self._low) & (raw <= self._high) & np.isfinite(raw)
        if self._sentinels.size:
            good &= ~np.isin(raw, self._sentinels)
        state = np.where(good, np.uint8(SignalState.KNOWN), np.uint8(SignalState.INVALID))
        for n, first, other in self._slot_twins:
            if _differ(values[first], values[other]):
                slot = self.plan.slots[n]
                reasons["slot", n] = text = f"conflicting duplicates {values[first]:g} vs {values[other]:g}"
                warnings.append(f"{slot.family.name}: {text}")
                state[n], good[n] = SignalState.CONFLICT, False
        if not good.all():
            for n in np.flatnonzero(~good):
                reasons.setdefault(("slot", int(n)), self._why_invalid(int(n), float(raw[n])))
        numbers = np.where(good, raw * self._scale, np.nan)
        histograms, histogram_state = self._histograms(values, reasons, warnings)
        return Parts(numbers, state, histograms, histogram_state, reasons)

    def _why_invalid(self, n: int, raw: float) -> str:
        signal = self.plan.slots[n].signal
        name = self.plan.slots[n].family.name
        if raw in self.plan.product.sentinels:
            return f"{name} is {raw:.0f}, which means no value"
        return f"{name} is {raw:g}, expected {signal.low:g} to {signal.high:g}"

    def _histograms(
        self, values: FloatArray, reasons: dict[tuple[str, int], str], warnings: list[str]
    ) -> tuple[list[Histogram | None], StateArray]:
        parts = self.plan.buckets
        state = np.zeros(len(parts), dtype=np.uint8)
        if not parts:
            return [], state
        counts = values[self._counts]
        sums = values[self._sums] * self._sum_scale
        invalid = ~(counts >= 0) | np.isinf(counts)
        invalid[1:] |= (np.diff(counts) < 0) & self._inner
        for n in np.unique(self._owner[invalid]) if invalid.any() else ():
            state[n] = SignalState.INVALID
            reasons["histogram", int(n)] = f"{parts[n].family.name} has buckets that fall or are no counts"
        for n in np.flatnonzero(~np.isfinite(sums)):
            state[n] = SignalState.INVALID
            reasons["histogram", int(n)] = f"{parts[n].family.name}_sum is {sums[n]:g}"
        for n, inf, count in self._count_checks:
            if values[inf] != values[count] and state[n] == SignalState.KNOWN:
                state[n] = SignalState.CONFLICT
                reasons["histogram", n] = (
                    f"{parts[n].family.name} has count {values[count]:g} but +Inf bucket {values[inf]:g}"
                )
        for n, first, other in self._bucket_twins:
            if _differ(values[first], values[other]):
                state[n] = SignalState.CONFLICT
                text = f"conflicting duplicates {values[first]:g} vs {values[other]:g}"
                reasons["histogram", n] = text
                warnings.append(f"{parts[n].family.name}: {text}")
        for n, broken in self._broken:
            state[n] = SignalState.INVALID
            reasons["histogram", n] = broken or ""
        edges = self._starts.tolist()
        totals = sums.tolist()
        histograms: list[Histogram | None] = [
            Histogram(part.bounds, counts[edges[n] : edges[n + 1]], totals[n]) for n, part in enumerate(parts)
        ]
        for n in np.flatnonzero(state):
            histograms[n] = None
        return histograms, state

    def _grid(self, level: Level) -> _Grid:
        plan = self.plan
        rows = plan.rows(level)
        position = {row: n for n, row in enumerate(rows)}
        signals = plan.product.of_level(level)
        scalars = tuple(signal.name for signal in signals if not signal.entry.is_histogram)
        histograms = tuple(signal.name for signal in signals if signal.entry.is_histogram)
        column = {name: n for n, name in enumerate(scalars)}
        template = np.full((len(rows), len(scalars)), SignalState.NEVER_SEEN, dtype=np.uint8)
        histogram_template = np.full((len(histograms), len(rows)), SignalState.NEVER_SEEN, dtype=np.uint8)
        reasons: dict[tuple[int, str], str] = {}
        for signal in signals:
            for row in rows:
                state, reason = self._absent((level, row, signal.name))
                reasons[position[row], signal.name] = reason
                if signal.entry.is_histogram:
                    histogram_template[histograms.index(signal.name), position[row]] = state
                else:
                    template[position[row], column[signal.name]] = state
        simple: list[tuple[int, int]] = []
        simple_histograms: list[tuple[int, int, int]] = []
        complex_: list[tuple[int, str, Cell]] = []
        for (at, row, name), cell in plan.cells.items():
            if at is not level:
                continue
            choice = cell.choices[0]
            alone = len(cell.choices) == 1 and cell.signal.levels is None and not self._gap(cell)
            reasons.pop((position[row], name), None)
            if alone and len(choice.slots) == 1 and not choice.buckets:
                simple.append((choice.slots[0], position[row] * len(scalars) + column[name]))
            elif alone and len(choice.buckets) == 1:
                simple_histograms.append((histograms.index(name), position[row], choice.buckets[0]))
            else:
                complex_.append((position[row], name, cell))
        constants: list[tuple[int, int, float]] = []
        for (at, row, name), constant in plan.constants.items():
            if at is level:
                template[position[row], column[name]] = constant.state
                constants.append((position[row], column[name], constant.value))
                reasons.pop((position[row], name), None)
                if constant.reason is not None:
                    reasons[position[row], name] = constant.reason
        return _Grid(
            level, rows, scalars, histograms, template, histogram_template, reasons,
            tuple(plan.row_labels[level, row] for row in rows),
            np.array([slot for slot, _ in simple], dtype=np.intp),
            np.array([cell for _, cell in simple], dtype=np.intp),
            tuple(simple_histograms), tuple(complex_), tuple(constants),
        )  # fmt: skip

    def _absent(self, cell: CellId) -> tuple[SignalState, str]:
        """Why a cell has no series at all."""
        signal = self.plan.product.signals[cell[2]]
        names = " or ".join(dict.fromkeys(f.name for f in signal.families))
        where = "".join(f' {label}="{"|".join(values)}"' for label, values in signal.where.items())
        if cell in self.seen:
            return SignalState.MISSING, f"{names}{where} was there before and is gone"
        if any(family.key in self.plan.declared for family in signal.families):
            return SignalState.MISSING, f"{names} is declared but has no sample yet"
        return SignalState.NEVER_SEEN, f"no {names}{where} so far"

    def _gap(self, cell: Cell) -> str | None:
        """An unreadable line of the cell's family: a part is not known, so no total is."""
        for choice in cell.choices:
            for suffix in ("", "_bucket", "_sum", "_count"):
                line = self.plan.incomplete.get(choice.family.key + suffix)
                if line is not None:
                    return line
        return None

    def _fill(self, grid: _Grid, parts: Parts, warnings: list[str]) -> Rows:
        state = grid.template.copy()
        value = np.full(state.shape, np.nan)
        value.flat[grid.simple_cells] = parts.slots[grid.simple_slots]
        state.flat[grid.simple_cells] = parts.slot_state[grid.simple_slots]
        for row, column, number in grid.constants:
            value[row, column] = number
        histogram_state = grid.histogram_template.copy()
        histograms: list[list[Histogram | None]] = [[None] * len(grid.rows) for _ in grid.histograms]
        for which, row, part in grid.simple_histograms:
            histograms[which][row] = parts.histograms[part]
            histogram_state[which, row] = parts.histogram_state[part]
        reasons = grid.reasons
        if parts.reasons or grid.complex:
            reasons = dict(reasons)
            self._explain(grid, parts, reasons)
        for row, name, cell in grid.complex:
            outcome = self._outcome(cell, parts, warnings)
            if outcome.reason is not None:
                reasons[row, name] = outcome.reason
            if cell.signal.entry.is_histogram:
                which = grid.histograms.index(name)
                histogram_state[which, row] = outcome.state
                histograms[which][row] = outcome.value if isinstance(outcome.value, Histogram) else None
            else:
                column = grid.columns.index(name)
                state[row, column] = outcome.state
                value[row, column] = outcome.value if isinstance(outcome.value, float) else np.nan
        return Rows(
            grid.rows, grid.columns, value, state,
            dict(zip(grid.histograms, histograms, strict=True)),
            dict(zip(grid.histograms, histogram_state, strict=True)),
            grid.labels, reasons,
        )  # fmt: skip

    def _explain(self, grid: _Grid, parts: Parts, reasons: dict[tuple[int, str], str]) -> None:
        """Reasons of simple cells that turned out not usable."""
        columns = len(grid.columns)
        for slot, cell in zip(grid.simple_slots.tolist(), grid.simple_cells.tolist(), strict=True):
            if ("slot", slot) in parts.reasons:
                reasons[cell // columns, grid.columns[cell % columns]] = parts.reasons["slot", slot]
        for which, row, part in grid.simple_histograms:
            if ("histogram", part) in parts.reasons:
                reasons[row, grid.histograms[which]] = parts.reasons["histogram", part]

    def _outcome(self, cell: Cell, parts: Parts, warnings: list[str]) -> Value:
        gap = self._gap(cell)
        if gap is not None:
            return Value(None, SignalState.INVALID, gap)
        of_choice = self._histogram_choice if cell.signal.entry.is_histogram else self._scalar_choice
        outcomes = [of_choice(cell, choice, parts) for choice in cell.choices]
        for first, choice in zip(outcomes, cell.choices, strict=True):
            if not first.state.usable:
                continue
            for other, rival in zip(outcomes, cell.choices, strict=True):
                compared = rival is not choice and not rival.family.fallback and other.state.usable
                if compared and not _same(first.value, other.value):
                    warnings.append(
                        f"{cell.signal.name}: {choice.family.name} and {rival.family.name} differ"
                        f" ({_shown(first.value)} vs {_shown(other.value)}); the newer name is used"
                    )
            return first
        return outcomes[0]

    def _scalar_choice(self, cell: Cell, choice: Choice, parts: Parts) -> Value:
        numbers = parts.slots[choice.slots].tolist()
        known = [number for number in numbers if number == number]
        lost = [n for n in choice.slots if parts.slot_state[n] != SignalState.KNOWN]
        if lost and (
            not known or cell.signal.entry.aggregate is Aggregate.SUM or cell.signal.levels is not None
        ):
            why = parts.reasons.get(("slot", lost[0]), "")
            count = f" ({len(known)} known of {len(numbers)} parts)" if len(numbers) > 1 else ""
            return Value(None, SignalState(int(parts.slot_state[lost[0]])), f"{why}{count}")
        if cell.signal.levels is not None:
            active = [self.plan.slots[n].weight for n in choice.slots if parts.slots[n] == 1.0]
            if not active:
                return Value(None, SignalState.INVALID, f"{choice.family.name} has no state set to 1")
            return Value(aggregate(cell.signal.entry.aggregate, active), SignalState.KNOWN)
        reason = f"{len(known)} known of {len(numbers)} parts" if lost else None
        return Value(aggregate(cell.signal.entry.aggregate, known), SignalState.KNOWN, reason)

    def _histogram_choice(self, cell: Cell, choice: Choice, parts: Parts) -> Value:
        for n in choice.buckets:
            if parts.histogram_state[n] != SignalState.KNOWN:
                return Value(None, SignalState(int(parts.histogram_state[n])), parts.reasons["histogram", n])
        return merge(choice.family.name, [parts.histograms[n] for n in choice.buckets])


def aggregate(rule: Aggregate, numbers: Sequence[float]) -> float:
    """One value of several parts, by the catalog's rule. `numbers` must not be empty."""
    if rule is Aggregate.SUM:
        return float(sum(numbers))
    if rule is Aggregate.MAX:
        return max(numbers)
    if rule is Aggregate.MIN:
        return min(numbers)
    return sum(numbers) / len(numbers)


def merge(name: str, parts: Iterable[Histogram | None]) -> Value:
    """One histogram of several, exact only where the bounds are the same."""
    whole: Histogram | None = None
    for part in parts:
        if part is None:
            continue
        if whole is None:
            whole = part
            continue
        joined = whole.plus(part)
        if joined is None:
            return Value(None, SignalState.CONFLICT, f"{name} has parts with different buckets, no exact sum")
        whole = joined
    return Value(whole, SignalState.KNOWN if whole is not None else SignalState.MISSING)


def _differ(a: float, b: float) -> bool:
    return not (a == b or (a != a and b != b))


def _same(a: float | Histogram | None, b: float | Histogram | None) -> bool:
    if isinstance(a, Histogram) and isinstance(b, Histogram):
        same_buckets = np.array_equal(a.bounds, b.bounds) and np.array_equal(a.counts, b.counts)
        return same_buckets and a.sum == b.sum
    return a == b


def _shown(value: float | Histogram | None) -> str:
    return f"{value.count:g} observations" if isinstance(value, Histogram) else f"{value:g}"
