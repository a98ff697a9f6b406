"""How parts become one value: the catalog's rules for numbers, exact merging for histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.catalog import Aggregate
from collector.model import Histogram, SignalState


@dataclass(frozen=True, slots=True)
class Value:
    """A number or histogram with its state; `value` is None unless the state is usable."""

    value: float | Histogram | None
    state: SignalState
    reason: str | None = None


def aggregate(rule: Aggregate, numbers: Sequence[float]) -> float:
    """One value of several parts, by the catalog's rule. `numbers` must not be empty."""
    if rule is Aggregate.SUM:
        return sum(numbers)
    if rule is Aggregate.MAX:
        return max(numbers)
    if rule is Aggregate.MIN:
        return min(numbers)
    return sum(numbers) / len(numbers)


def merge(name: str, parts: Sequence[Histogram]) -> Value:
    """One histogram of several; exact, so only where the bounds are the same. `parts` must not be empty."""
    first = parts[0]
    if len(parts) == 1:
        return Value(first, SignalState.KNOWN)
    for part in parts[1:]:
        if part.bounds is not first.bounds and not np.array_equal(part.bounds, first.bounds):
            reason = f"{name} has parts with different buckets, which have no exact sum"
            return Value(None, SignalState.CONFLICT, reason)
    counts = np.add.reduce([part.counts for part in parts])
    return Value(Histogram(first.bounds, counts, sum(part.sum for part in parts)), SignalState.KNOWN)


def same(a: float | Histogram | None, b: float | Histogram | None) -> bool:
    if isinstance(a, Histogram) and isinstance(b, Histogram):
        same_buckets = np.array_equal(a.bounds, b.bounds) and np.array_equal(a.counts, b.counts)
        return same_buckets and a.sum == b.sum
    return a == b


def shown(value: float | Histogram | None) -> str:
    if isinstance(value, Histogram):
        return f"{value.count:g} observations, sum {value.sum:g}"
    return "nothing" if value is None else f"{value:g}"
