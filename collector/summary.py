"""A reading for people and for JSON: signals over all of a target's rows, and the parts they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from collector.aggregation import Value, aggregate, merge
from collector.catalog import Product, ProductSignal
from collector.evaluate import Evaluation
from collector.model import Histogram, Level, SignalState
from collector.plan import Plan
from collector.rows import Rows

# of several reasons for having no number, the one that says most comes first
_TELLING = (SignalState.CONFLICT, SignalState.INVALID, SignalState.STALE, SignalState.MISSING)


@dataclass(frozen=True, slots=True)
class SignalReading:
    """A canonical signal aggregated over the whole target; value is None unless the state is usable."""

    name: str
    value: float | Histogram | None
    state: SignalState
    unit: str
    reason: str | None = None


def summarise(product: Product, rows: Mapping[Level, Rows]) -> dict[str, SignalReading]:
    """Every signal the product can give, in the catalog's order; unknown ones with their reason."""
    return {signal.name: _summary(signal, rows.get(signal.level)) for signal in product.signals.values()}


def _summary(signal: ProductSignal, rows: Rows | None) -> SignalReading:
    unit = signal.entry.signal.unit
    values = list(_row_values(signal, rows)) if rows is not None else []
    known = [value for value in values if value.state.usable]
    lost = [value for value in values if not value.state.usable and value.state in _TELLING]
    if not known:
        told = min(lost, key=lambda value: _TELLING.index(value.state), default=None)
        if told is None:
            first = values[0] if values else None
            reason = first.reason if first is not None else f"no {signal.families[0].name} so far"
            return SignalReading(signal.name, None, SignalState.NEVER_SEEN, unit, reason)
        return SignalReading(signal.name, None, told.state, unit, told.reason)
    reason = f"{len(known)} known of {len(known) + len(lost)}" if lost else known[0].reason if len(known) == 1 else None
    if signal.entry.is_histogram:
        parts = [value.value for value in known if isinstance(value.value, Histogram)]
        merged = merge(signal.families[0].name, parts)
        return SignalReading(signal.name, merged.value, merged.state, unit, merged.reason or reason)
    numbers = [value.value for value in known if isinstance(value.value, float)]
    return SignalReading(signal.name, aggregate(signal.entry.aggregate, numbers), SignalState.KNOWN, unit, reason)


def _row_values(signal: ProductSignal, rows: Rows) -> Iterator[Value]:
    for n, row in enumerate(rows.rows):
        reason = rows.reasons.get((n, signal.name))
        if signal.entry.is_histogram:
            state = SignalState(int(rows.histogram_state[signal.name][n]))
            yield Value(rows.histogram(row, signal.name), state, reason)
        else:
            cell = rows.cell(row, signal.name)
            yield Value(cell.known, cell.state, reason)


def series_of(plan: Plan, evaluation: Evaluation) -> tuple[Mapping[str, object], ...]:
    """Each series and histogram that feeds a signal: signal, metric, labels, value, state; twins once."""
    samples = plan.layout.samples
    found: list[Mapping[str, object]] = []
    for n, slot in enumerate(plan.slots):
        value = evaluation.parts.slots[n]
        found.append(
            {
                "signal": slot.signal.name,
                "metric": samples[slot.index].name,
                "labels": dict(samples[slot.index].labels),
                "value": value if np.isfinite(value) else None,
                "state": SignalState(int(evaluation.parts.slot_state[n])).label,
            }
        )
    for n, part in enumerate(plan.buckets):
        indices = (part.count_index, *part.counts[:1], part.sum_index)
        any_index = next(index for index in indices if index is not None and index >= 0)
        labels = {key: text for key, text in samples[any_index].labels.items() if key != "le"}
        histogram = evaluation.parts.histograms[n]
        found.append(
            {
                "signal": part.signal.name,
                "metric": part.family.name,
                "labels": labels,
                "value": histogram_document(histogram) if histogram is not None else None,
                "state": SignalState(int(evaluation.parts.histogram_state[n])).label,
            }
        )
    return tuple(found)


def document(signal: SignalReading) -> dict[str, object]:
    """{value, state, reason, unit} as JSON holds them."""
    value: object = signal.value
    if isinstance(signal.value, Histogram):
        value = histogram_document(signal.value)
    return {"value": value, "state": signal.state.label, "reason": signal.reason, "unit": signal.unit}


def histogram_document(histogram: Histogram) -> dict[str, object]:
    """{count, sum, buckets}: buckets are cumulative, keyed by upper bound ("+Inf" the last)."""
    bounds = ["+Inf" if np.isinf(bound) else f"{bound:.12g}" for bound in histogram.bounds]
    return {
        "count": histogram.count,
        "sum": histogram.sum,
        "buckets": dict(zip(bounds, histogram.counts.tolist(), strict=True)),
    }
