"""How a body's numbers become cells: everything but the numbers, compiled once per layout.

Rows. A series belongs to the row its key labels name (`RowRule`, or the signal's own `key`). Where `joins` is
set the name is looked for among the rows of the level first; failing that the series goes to the route the
reader was given, or to the only row there is; otherwise to a row of its own. A series without any key label
belongs to the only row, or, where there are several or none, to a row without a name ("").

Parts. Within a row, series that differ in other labels are parts (ranks, servers, handlers) and are
aggregated by the catalog's rule. At device level the row is the physical device: series that differ only in
who uses it (pods of a time-sliced card) are twins of one reading, not parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collector.catalog import Family, Product, ProductSignal
from collector.layout import Layout
from collector.model import FloatArray, Level, SignalState

RowId = tuple[Level, str]
CellId = tuple[Level, str, str]  # level, row, signal


@dataclass(frozen=True, slots=True)
class Slot:
    """One gathered number: `index` into the body's values, `twins` are repetitions of the same series."""

    index: int
    signal: ProductSignal
    family: Family
    weight: float = 0.0  # one-hot families: the number this series stands for
    twins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Buckets:
    """One histogram part: value indices of its buckets by ascending canonical bound, the last is +Inf."""

    bounds: FloatArray
    counts: tuple[int, ...]
    sum_index: int
    count_index: int | None
    signal: ProductSignal
    family: Family
    twins: tuple[tuple[int, int], ...] = ()
    broken: str | None = None  # why it can never be read


@dataclass
class Choice:
    """One family that can feed a cell. Scalar cells have `slots`, histogram cells `buckets`."""

    family: Family
    slots: list[int] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)


@dataclass
class Cell:
    """Where a cell's number comes from: choices in the catalog's order of preference."""

    signal: ProductSignal
    choices: list[Choice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Constant:
    """A cell whose value stands in labels, so it cannot change while the layout stays."""

    value: float
    state: SignalState
    reason: str | None = None


@dataclass
class Plan:
    """Everything about a body but its numbers."""

    layout: Layout
    product: Product
    slots: list[Slot] = field(default_factory=list)
    buckets: list[Buckets] = field(default_factory=list)
    cells: dict[CellId, Cell] = field(default_factory=dict)
    constants: dict[CellId, Constant] = field(default_factory=dict)
    row_labels: dict[RowId, dict[str, str]] = field(default_factory=dict)  # also the rows, in order
    declared: frozenset[str] = frozenset()  # canonical families with a `# TYPE` and no sample
    incomplete: Mapping[str, str] = field(default_factory=dict)  # canonical sample name -> unreadable line
    warnings: tuple[str, ...] = ()

    def rows(self, level: Level) -> tuple[str, ...]:
        return tuple(row for at, row in self.row_labels if at is level)
