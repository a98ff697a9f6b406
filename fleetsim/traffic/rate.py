"""Offered rates as functions of time (requests/s over seconds): how many arrive, not when exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# The daily swing of ServeGen's language_m-large (14 days of 10-minute windows: p5 84/s, mean 196/s, p95 342/s).
# exp(s sin) has p95/p5 = exp(2 s sin(0.45 pi)), so ln(342/84) = 1.976 s; mean and p5 then come out within 3 %.
DAILY_SWING = 0.71
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate and its upper bound. `at` takes an array of times and gives an array of rates between 0 and `peak`."""

    peak: float
    at: Callable[[FloatArray], FloatArray]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.peak) and self.peak >= 0):
            raise ValueError(f"expected a finite rate of 0 or more, found {self.peak}: correct the rate")

    @staticmethod
    def held(starts_s: FloatArray, rates: FloatArray) -> Rate:
        """Each rate from its start to the next; before the first start the rate is 0."""
        padded = np.concatenate(([0.0], rates))
        if not (np.isfinite(padded).all() and padded.min() >= 0):
            raise ValueError("expected finite rates of 0 or more, found others: correct the rates")
        return Rate(float(padded.max()), lambda t: padded[np.searchsorted(starts_s, t, side="right")])


def constant(rate: float) -> Rate:
    return Rate(rate, lambda t: np.full_like(t, rate))


def steps(points: Sequence[tuple[float, float]]) -> Rate:
    """(start in s, requests/s), ascending; 0 before the first."""
    starts = np.array([start for start, _ in points], dtype=float)
    if not points or (np.diff(starts) <= 0).any():
        raise ValueError(f"expected steps with ascending starts, found {list(points)}: order them")
    return Rate.held(starts, np.array([rate for _, rate in points], dtype=float))


def ramp(start: tuple[float, float], end: tuple[float, float]) -> Rate:
    """Straight from (s, requests/s) to (s, requests/s), level before and after."""
    if not (start[0] < end[0] and start[1] >= 0 and end[1] >= 0):
        raise ValueError(f"expected a ramp forward in time between rates of 0 or more, found {start} to {end}")
    return Rate(max(start[1], end[1]), lambda t: np.interp(t, (start[0], end[0]), (start[1], end[1])))


def diurnal(mean: float, swing: float = DAILY_SWING, period_s: float = DAY_S, peak_s: float = DAY_S * 0.6) -> Rate:
    """mean * exp(swing * cos) / I0(swing): a day whose logarithm is a sine, so that it never reaches zero, and whose
    mean over a period is `mean` (I0, the modified Bessel function, is the mean of exp(swing * cos)).
    """
    base = mean / float(np.i0(swing))
    turn = 2 * math.pi / period_s
    return Rate(base * math.exp(abs(swing)), lambda t: base * np.exp(swing * np.cos(turn * (t - peak_s))))


def spike(rate: Rate, start_s: float, end_s: float, factor: float = 3.0) -> Rate:
    """`factor` times the rate from start (included) to end (not included)."""
    if not (start_s < end_s and factor >= 0):
        raise ValueError(f"expected start < end and a factor of 0 or more, found {start_s}, {end_s}, {factor}")
    inner = rate.at
    return Rate(
        rate.peak * max(1.0, factor),
        lambda t: inner(t) * np.where((t >= start_s) & (t < end_s), factor, 1.0),
    )
