"""From a body's layout and a product's catalog to a plan (see `collector.plan` for rows and parts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from collector.catalog import Family, Product, ProductSignal, RowRule, canonical_key
from collector.layout import Layout
from collector.model import FloatArray, Kind, Level, SignalState
from collector.plan import Buckets, Cell, CellId, Choice, Constant, Plan, RowId, Slot


def compile_plan(layout: Layout, product: Product, route: str | None = None) -> Plan:
    """The plan of one layout. `route`: the cluster that signals of the listener belong to."""
    return _Compiler(layout, product, route).compile()


class _Compiler:
    def __init__(self, layout: Layout, product: Product, route: str | None) -> None:
        self._samples = layout.samples
        self._route = route
        self._product = product
        self._by_key: dict[str, list[int]] = {}
        self._unplaced: set[str] = set()  # signals with series that name no row
        for name, indices in layout.families().items():
            self._by_key.setdefault(canonical_key(name), []).extend(indices)
        typed = {canonical_key(name) for name in layout.types}
        incomplete = {canonical_key(e.name): str(e) for e in layout.errors if e.name is not None}
        self._plan = Plan(layout, product, declared=frozenset(typed - self._by_key.keys()), incomplete=incomplete)

    def compile(self) -> Plan:
        plan = self._plan
        for level in self._product.rows:
            self._add_rows(level)
        for signal in self._product.signals.values():
            for family in signal.families:
                if signal.entry.is_histogram:
                    self._histogram(signal, family)
                elif signal.product_of:
                    self._constants(signal, family)
                else:
                    self._scalar(signal, family)
        plan.warnings = tuple(_static_warnings(plan))
        if self._unplaced:
            names = ", ".join(sorted(self._unplaced))
            plan.warnings += (f"{names}: expected labels that name the row, found series without; nobody's",)
        return plan

    def _add_rows(self, level: Level) -> None:
        """Rows of the level's own key, before anything joins them, and what their labels say."""
        rule = self._product.rows[level]
        if not rule.key:
            self._plan.row_labels[level, ""] = {}
            return
        found: dict[str, list[Mapping[str, str]]] = {}
        for signal in self._product.of_level(level):
            for labels in self._labels_of(signal):
                row = _row_key(rule, labels)
                if row is not None and signal.key is None:
                    found.setdefault(row, []).append(labels)
        for row, members in found.items():
            self._plan.row_labels[level, row] = {}
            self._describe(rule, found, (level, row), members)

    def _labels_of(self, signal: ProductSignal) -> Iterator[Mapping[str, str]]:
        suffixes = ("_count", "_bucket") if signal.entry.is_histogram else ("",)
        for family in signal.families:
            for suffix in suffixes:
                for index in self._by_key.get(family.key + suffix, ()):
                    if signal.matches(self._samples[index].labels):
                        yield self._samples[index].labels

    def _describe(
        self,
        rule: RowRule,
        found: Mapping[str, list[Mapping[str, str]]],
        row: RowId,
        members: list[Mapping[str, str]],
    ) -> None:
        for name, spellings in rule.labels.items():
            # one spelling for the whole body: with exported_pod anywhere, `pod` is the exporter's everywhere
            spelling = next((s for s in spellings if any(s in m for all_ in found.values() for m in all_)), None)
            values = {m[spelling] for m in members if spelling is not None and m.get(spelling)}
            if values:
                self._plan.row_labels[row][name] = ",".join(sorted(values))

    def _row(self, signal: ProductSignal, labels: Mapping[str, str]) -> str | None:
        """Row key of one series; adds the row where the signal brings its own."""
        level = signal.level
        if signal.key is None:
            row = _row_key(self._product.rows[level], labels)
            return row if row is not None else self._unnamed(signal)
        named = next((labels[label] for label in signal.key if label in labels), None)
        if named is None:
            return None
        own = [row for at, row in self._plan.row_labels if at is level and not row.startswith("listener:")]
        if signal.joins and named in own:
            return named
        if signal.joins and self._route in own:
            return self._route
        if signal.joins and len(own) == 1:
            return own[0]
        row = signal.key_prefix + named
        self._plan.row_labels.setdefault((level, row), {})
        return row

    def _unnamed(self, signal: ProductSignal) -> str:
        """Where a series without key labels belongs: to the only row, else to a row without a name."""
        rows = [row for row in self._plan.rows(signal.level) if row]
        if len(rows) == 1:
            return rows[0]
        self._unplaced.add(signal.name)
        self._plan.row_labels.setdefault((signal.level, ""), {})
        return ""

    def _choice(self, signal: ProductSignal, family: Family, row: str) -> Choice:
        cell = self._plan.cells.setdefault((signal.level, row, signal.name), Cell(signal))
        if signal.adds_up and cell.choices:
            return cell.choices[0]
        for choice in cell.choices:
            if choice.family is family:
                return choice
        cell.choices.append(Choice(family))
        return cell.choices[-1]

    def _grouped(self, signal: ProductSignal, key: str) -> dict[str, dict[object, list[int]]]:
        """Value indices of one sample name: row -> part -> the series and its twins."""
        grouped: dict[str, dict[object, list[int]]] = {}
        for index in self._by_key.get(key, ()):
            labels = self._samples[index].labels
            row = self._row(signal, labels) if signal.matches(labels) else None
            if row is not None:
                part = _part(signal, labels)
                grouped.setdefault(row, {}).setdefault(part, []).append(index)
        return grouped

    def _scalar(self, signal: ProductSignal, family: Family) -> None:
        for row, parts in self._grouped(signal, family.key).items():
            choice = self._choice(signal, family, row)
            for indices in parts.values():
                weight = 0.0
                if signal.levels is not None:
                    label, values = signal.levels
                    known = values.get(self._samples[indices[0]].labels.get(label, ""))
                    if known is None:
                        continue
                    weight = known
                choice.slots.append(len(self._plan.slots))
                self._plan.slots.append(Slot(indices[0], signal, family, weight, tuple(indices[1:])))

    def _constants(self, signal: ProductSignal, family: Family) -> None:
        for row, parts in self._grouped(signal, family.key).items():
            total = 0.0
            reason = None
            for indices in parts.values():
                labels = self._samples[indices[0]].labels
                texts = [labels.get(label) for label in signal.product_of]
                if all(text is not None and text.isdecimal() for text in texts):
                    total += float(np.prod([float(text) for text in texts if text is not None]))
                else:
                    shown = ", ".join(f'{a}="{b}"' for a, b in zip(signal.product_of, texts, strict=True))
                    reason = f"{family.name} has {shown}; not set up yet"
            cell: CellId = (signal.level, row, signal.name)
            known = reason is None
            self._plan.constants[cell] = Constant(
                total if known else np.nan, SignalState.KNOWN if known else SignalState.INVALID, reason
            )

    def _histogram(self, signal: ProductSignal, family: Family) -> None:
        counts = self._grouped(signal, family.key + "_count")
        sums = self._grouped(signal, family.key + "_sum")
        buckets = self._grouped(signal, family.key + "_bucket")
        for row in dict.fromkeys([*counts, *buckets, *sums]):
            choice = self._choice(signal, family, row)
            of_row = [group.get(row, {}) for group in (buckets, sums, counts)]
            for part in dict.fromkeys(part for group in of_row for part in group):
                choice.buckets.append(len(self._plan.buckets))
                bucket, sum_, count = (group.get(part, []) for group in of_row)
                self._plan.buckets.append(self._buckets(signal, family, bucket, sum_, count))

    def _buckets(
        self, signal: ProductSignal, family: Family, bucket: list[int], sums: list[int], counts: list[int]
    ) -> Buckets:
        by_bound: dict[float, list[int]] = {}
        broken = None
        for index in bucket:
            bound = _bound(self._samples[index].labels.get("le"))
            if bound is None:
                broken = f'{family.name}_bucket has le="{self._samples[index].labels.get("le")}", not a number'
                continue
            by_bound.setdefault(bound * signal.scale, []).append(index)
        if np.inf not in by_bound and counts:
            by_bound[np.inf] = counts  # the count is what the +Inf bucket would say
        if not sums or np.inf not in by_bound:
            broken = broken or f"{family.name} lacks its {'sum' if not sums else 'count and +Inf bucket'}"
        bounds = sorted(by_bound)
        groups = [*by_bound.values(), sums, counts]
        twins = tuple((group[0], other) for group in groups for other in group[1:])
        return Buckets(
            bounds=_shared_bounds(tuple(bounds)),
            counts=tuple(by_bound[bound][0] for bound in bounds),
            sum_index=sums[0] if sums else -1,
            count_index=counts[0] if counts else None,
            signal=signal,
            family=family,
            twins=twins,
            broken=broken,
        )


@lru_cache(maxsize=1024)
def _shared_bounds(bounds: tuple[float, ...]) -> FloatArray:
    """One array for all histograms with these bounds: comparing them is comparing identities."""
    array = np.array(bounds)
    array.flags.writeable = False
    return array


def _row_key(rule: RowRule, labels: Mapping[str, str]) -> str | None:
    """The row a series belongs to; None where it carries none of the key labels."""
    if not rule.key:
        return ""
    for label in rule.key:
        if labels.get(label):
            rest = [labels[extra] for extra in rule.suffix if labels.get(extra)]
            return "/".join([labels[label], *rest])
    return None


def _part(signal: ProductSignal, labels: Mapping[str, str]) -> object:
    """What tells one part of a row from another; equal for twins."""
    if signal.level is Level.DEVICE:
        return tuple(labels.get(label) for label in signal.parts_by)
    return frozenset(item for item in labels.items() if item[0] != "le")


def _bound(text: str | None) -> float | None:
    try:
        bound = float(text) if text is not None else None
    except ValueError:
        return None
    return None if bound is None or np.isnan(bound) else bound


_TYPE_NAMES = {Kind.GAUGE: {"gauge"}, Kind.COUNTER: {"counter"}, Kind.HISTOGRAM: {"histogram"}}
_NO_CLAIM = {"untyped", "unknown", "info", "stateset"}


def _static_warnings(plan: Plan) -> Iterator[str]:
    """What can be said of a layout whatever its numbers are."""
    types = {canonical_key(name): kind for name, kind in plan.layout.types.items()}
    told: set[str] = set()
    for cell in plan.cells.values():
        for choice in cell.choices:
            family, kind = choice.family, cell.signal.entry.signal.kind
            declared = types.get(family.key, types.get(family.key.removesuffix("_total")))
            mismatch = declared is not None and declared not in _TYPE_NAMES.get(kind, set()) | _NO_CLAIM
            if mismatch and family.key not in told:
                told.add(family.key)
                yield f"{family.name}: expected TYPE {kind}, found {declared}; read as {kind}"
        note = cell.choices[0].family.note if cell.choices else None
        if note is not None and cell.choices[0].family.key not in told:
            told.add(cell.choices[0].family.key)
            yield f"{cell.choices[0].family.name}: {note}"
    unlabelled = sorted(_without_model(plan))
    if unlabelled:
        label, title = plan.product.model_label, plan.product.title
        names = ", ".join(unlabelled)
        yield f"{names}: expected the label {label}, found none; not as {title} writes, a look-alike?"


def _without_model(plan: Plan) -> set[str]:
    """Families of the product's own that lack the label it puts on all of them."""
    label, samples = plan.product.model_label, plan.layout.samples
    if label is None:
        return set()
    firsts = [(slot.family, slot.index) for slot in plan.slots]
    firsts += [(part.family, part.sum_index) for part in plan.buckets]
    return {
        family.name
        for family, index in firsts
        if family.key.startswith(plan.product.prefixes) and label not in samples[index].labels
    }
