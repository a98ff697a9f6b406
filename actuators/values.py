"""What the values of a lever mean: their ranges, and when two of them are the same."""

from __future__ import annotations

import math

from actuators.model import Lever, LeverValue

FULL_WEIGHT = 100.0
FULL_PERCENT = 100.0

_RANGES: dict[Lever, tuple[float, float]] = {
    Lever.SCALE: (0.0, math.inf),
    Lever.WEIGHT: (0.0, FULL_WEIGHT),
    Lever.BREAKER: (0.0, 2.0**32 - 1),
    Lever.ADMISSION: (0.0, FULL_PERCENT),
    Lever.RETRY_BUDGET: (0.0, FULL_PERCENT),
    Lever.DRAIN: (0.0, 1.0),
    Lever.WAKE: (0.0, 1.0),
}


def canonical(lever: Lever, value: LeverValue) -> LeverValue:
    """The one spelling of a value: whole units, and a limit that limits nothing is None.

    Every lever counts whole things (replicas, requests, percent, weight steps). For an endpoint, None is the
    default state: full weight, not draining, not woken.
    """
    if value is None:
        if lever is Lever.WEIGHT:
            return FULL_WEIGHT
        return 0.0 if lever in (Lever.DRAIN, Lever.WAKE) else None
    whole = float(round(value))
    if lever in (Lever.ADMISSION, Lever.RETRY_BUDGET) and whole >= FULL_PERCENT:
        return None
    return whole


def same(lever: Lever, left: LeverValue, right: LeverValue) -> bool:
    """Whether two values have the same meaning for the lever."""
    return canonical(lever, left) == canonical(lever, right)


def out_of_range(lever: Lever, value: LeverValue) -> str | None:
    """One sentence if the value cannot be set on the lever, else None."""
    if value is None:
        return "expected a number of replicas, found none: give one" if lever is Lever.SCALE else None
    low, high = _RANGES[lever]
    if math.isfinite(value) and low <= value <= high:
        return None
    upper = "" if math.isinf(high) else f"..{high:.0f}"
    return f"expected {lever} in {low:.0f}{upper}, found {value}: clamp the value before it is sent"


def show(value: LeverValue) -> str:
    """The value as a reader sees it."""
    return "off" if value is None else f"{value:g}"
