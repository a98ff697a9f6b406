"""Numbers on their way into JSON: a value with its state, never NaN and never a zero that nobody measured."""

from __future__ import annotations

import math

from analyzers.model import Measure
from collector.model import Cell, Censor, Histogram, Quantile, SignalState

Document = dict[str, object]

REASONS = {
    SignalState.KNOWN: "",
    SignalState.IDLE: "no work",
    SignalState.STALE: "the last sample is too old",
    SignalState.NEVER_SEEN: "this target never exported it",
    SignalState.MISSING: "it was there before and is gone",
    SignalState.INVALID: "the value is not possible",
    SignalState.CONFLICT: "the same series has two values",
    SignalState.WARMING: "too few samples yet",
    SignalState.RESET: "the counter fell and no restart explains it",
    SignalState.INCONSISTENT: "the counter falls again and again",
}


def number(value: float | None) -> float | None:
    """`value` if it is finite, else None: JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def known(value: float, unit: str = "") -> Document:
    return {"value": number(value), "state": "known", "unit": unit, "reason": ""}


def unknown(reason: str, state: str = "unknown(missing)", unit: str = "") -> Document:
    return {"value": None, "state": state, "unit": unit, "reason": reason}


def cell(item: Cell, unit: str = "") -> Document:
    """A cell of a table; `age_s` is there when there was a sample."""
    document: Document = {
        "value": number(item.known),
        "state": item.state.label,
        "unit": unit,
        "reason": REASONS[item.state],
    }
    if (age := number(item.age_s)) is not None:
        document["age_s"] = age
    return document


def measure(item: Measure | None, unit: str = "") -> Document:
    if item is None:
        return unknown("no analyzer measured it", "unknown(never_seen)", unit)
    return {
        "value": number(item.known),
        "state": item.state.label,
        "unit": item.unit or unit,
        "reason": REASONS[item.state],
    }


def quantile(item: Quantile, unit: str = "s") -> Document:
    """A quantile; `censor` says on which side of `value` the true one lies when the buckets cannot tell."""
    document = known(item.value, unit)
    if item.censor is not Censor.NONE:
        document["censor"] = item.censor.value
        document["reason"] = f"at or {item.censor.value} the outermost bucket"
    return document


def histogram(item: Histogram | None, state: int | None) -> Document:
    """A histogram as read: `count` and `sum` since the target's start."""
    label = SignalState.NEVER_SEEN if state is None else SignalState(state)
    if item is None or not label.usable:
        return {"value": None, "state": label.label, "unit": "", "reason": REASONS[label]}
    value = {"count": number(item.count), "sum": number(item.sum)}
    return {"value": value, "state": label.label, "unit": "", "reason": REASONS[label]}
