"""Discrete events in virtual time: a heap of calls, run in order of time and, at one time, of their making."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Simulation:
    """The clock, in seconds. Nothing can be cancelled: a call that is due checks whether it still matters."""

    __slots__ = ("_calls", "_made", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._calls: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, time: float, call: Callable[..., object], *args: Any) -> None:
        """Call at `time`, or now if that is past."""
        self._made += 1
        heapq.heappush(self._calls, (time if time > self.now else self.now, self._made, call, args))

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        self._made += 1
        heapq.heappush(self._calls, (self.now + delay_s, self._made, call, args))

    def run_until(self, end: float) -> None:
        """Run every call due up to and including `end`; the clock stands at `end` afterwards."""
        calls, pop = self._calls, heapq.heappop
        while calls and calls[0][0] <= end:
            self.now, _, call, args = pop(calls)
            call(*args)
        self.now = max(self.now, end)
