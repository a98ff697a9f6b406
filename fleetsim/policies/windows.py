"""Values over time, as the peers keep them: recent averages and peaks, and what counters rose by."""

from __future__ import annotations

from collections import deque
from itertools import pairwise


class Recent:
    """Values of the last `window_s` seconds; the oldest kept is younger than that."""

    __slots__ = ("_values", "window_s")

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        self._values.append((now, value))
        self._drop(now)

    def mean(self, now: float) -> float | None:
        """None: nothing in the window."""
        self._drop(now)
        return sum(v for _, v in self._values) / len(self._values) if self._values else None

    def peak(self, now: float) -> float | None:
        self._drop(now)
        return max((v for _, v in self._values), default=None)

    def _drop(self, now: float) -> None:
        while self._values and self._values[0][0] <= now - self.window_s:
            self._values.popleft()


class Counters:
    """A few counters of one process over the last `window_s` seconds."""

    __slots__ = ("_samples", "window_s")

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, tuple[float | None, ...]]] = deque()

    def add(self, now: float, values: tuple[float | None, ...]) -> None:
        self._samples.append((now, values))
        while self._samples[0][0] < now - self.window_s:
            self._samples.popleft()

    def increase(self, index: int) -> float | None:
        """By how much a counter rose between the window's first and last sample that have it; None with fewer than two.

        A counter that fell began anew with its process: it counts from 0 then, as Prometheus' `increase` has it.
        """
        values = [found for _, sample in self._samples if (found := sample[index]) is not None]
        if len(values) < 2:
            return None
        return sum(rise(a, b) for a, b in pairwise(values))


def rise(before: float, after: float) -> float:
    return after - before if after >= before else after


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where either is not known or the whole is nothing."""
    return part / whole if part is not None and whole else None
