"""Arrival times: a Poisson process whose rate is shaken by levels held for random times (doubly stochastic).

The rate of time is multiplied by independent levels. Each level is gamma distributed with mean 1, held for an
exponential time and then drawn anew, so its autocovariance is cv2 * exp(-|lag| / hold_s); the counts in windows of w
seconds then have (Cox process, variance of an integrated exponential covariance)
    index of dispersion(w) = 1 + sum over terms 2 * rate * v * h^2 / w * (w/h - 1 + exp(-w/h)),
where the terms (v, h) of a product of levels are those of every level and of every combination of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fleetsim.traffic.random_streams import BLOCK, generator
from fleetsim.traffic.rate import FloatArray, Rate


@dataclass(frozen=True, slots=True)
class Level:
    """A gamma distributed factor on the rate: squared coefficient of variation, mean holding time (s)."""

    cv2: float
    hold_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.cv2 < math.inf and 0 < self.hold_s < math.inf):
            raise ValueError(f"expected cv2 of 0 or more and hold_s above 0, found {self}: correct the level")


@dataclass(frozen=True, slots=True)
class Burst:
    """How arrivals cluster. No levels: Poisson. `tick_s`: arrivals are recorded at the tick before them."""

    levels: tuple[Level, ...] = ()
    tick_s: float = 0.0

    def dispersion(self, rate: float, window_s: float = 1.0) -> float:
        """Index of dispersion (variance / mean) of counts in windows, at a constant mean rate. With ticks, windows
        must divide a tick: one of tick/window windows then holds all of a tick's arrivals.
        """
        width = max(window_s, self.tick_s)
        index = 1.0
        for v, h in self._terms():
            index += 2 * rate * v * h * h / width * (width / h - 1 + math.exp(-width / h))
        return index + rate * (width - window_s)

    def _terms(self) -> list[tuple[float, float]]:
        terms: list[tuple[float, float]] = []
        for level in self.levels:
            joint = [(v * level.cv2, 1 / (1 / h + 1 / level.hold_s)) for v, h in terms]
            terms += [*joint, (level.cv2, level.hold_s)]
        return terms

    def held_to(self, index: float, rate: float) -> Burst:
        """The same levels, stronger or weaker, so that the index at 1 s is `index` at this mean rate. Left alone, the
        excess over 1 grows with the rate, as when every user does more; held, it is as when more users come.
        ValueError if the ticks alone exceed it.
        """
        calm = replace(self, levels=()).dispersion(rate)
        if not (self.levels and calm <= index < math.inf):
            raise ValueError(
                f"expected levels and a finite index of at least {calm:.3g}, found {index}: raise it or drop ticks"
            )
        low, high = 0.0, 1.0
        while self._times(high).dispersion(rate) < index:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._times(middle).dispersion(rate) < index else (low, middle)
        return self._times(high)

    def _times(self, factor: float) -> Burst:
        return replace(self, levels=tuple(replace(level, cv2=level.cv2 * factor) for level in self.levels))


def arrival_times(rate: Rate, burst: Burst, duration_s: float, purpose: str) -> Iterator[float]:
    """Times in [0, duration_s), ascending, drawn a block at a time. A longer duration only adds arrivals at the end."""
    levels = [_Held(level, generator(f"{purpose}-level-{i}")) for i, level in enumerate(burst.levels) if level.cv2 > 0]
    draws = generator(purpose)
    if rate.peak == 0:
        return
    step = min([BLOCK / rate.peak, *(BLOCK * held.hold_s for held in levels)])
    index = 0
    while (start := index * step) < duration_s:
        index += 1
        times = _candidates(rate.peak, levels, start, index * step, draws)
        accepted = draws.random(times.size) * rate.peak < rate.at(times)
        times = times[accepted & (times < duration_s)]
        if burst.tick_s:
            times = np.floor(times / burst.tick_s) * burst.tick_s
        yield from times.tolist()


def _candidates(peak: float, levels: list[_Held], start: float, end: float, draws: np.random.Generator) -> FloatArray:
    """Arrivals at `peak` times the levels, from start to end: a Poisson count of the integrated rate, spread evenly
    over the integral and mapped back to time.
    """
    pieces = [held.over(start, end) for held in levels]
    changes = np.sort(np.concatenate([np.empty(0), *(ends for ends, _ in pieces)]))
    knots: FloatArray = np.concatenate((np.array([start]), changes, np.array([end])))
    intensity = np.full(knots.size - 1, peak, dtype=np.float64)
    for ends, values in pieces:
        intensity *= values[np.searchsorted(ends, knots[:-1], side="right")]
    integral = np.concatenate(([0.0], np.cumsum(intensity * np.diff(knots))))
    total = float(integral[-1])
    spread = np.sort(draws.random(draws.poisson(total))) * total
    times: FloatArray = np.interp(spread, integral, knots)
    return times


class _Held:
    """One level over time, drawn ahead in blocks."""

    def __init__(self, level: Level, rng: np.random.Generator) -> None:
        self.hold_s = level.hold_s
        self._cv2, self._rng = level.cv2, rng
        self._ends: FloatArray = np.empty(0)
        self._values: FloatArray = np.empty(0)

    def over(self, start: float, end: float) -> tuple[FloatArray, FloatArray]:
        """Changes within (start, end), and the values before, between and after them. Ask in order of time."""
        while not self._ends.size or self._ends[-1] < end:
            count = 64 + int((end - start) / self.hold_s)
            last = self._ends[-1] if self._ends.size else 0.0
            holds = self._rng.exponential(self.hold_s, count)
            self._ends = np.concatenate((self._ends, last + np.cumsum(holds)))
            values = self._rng.gamma(1 / self._cv2, self._cv2, count)
            self._values = np.concatenate((self._values, values))
        used = int(np.searchsorted(self._ends, end))
        changes, values = self._ends[:used], self._values[: used + 1]
        self._ends, self._values = self._ends[used:], self._values[used:]
        return changes, values
