"""A run of decode-only steps: each longer than the one before it by the same amount."""

from __future__ import annotations

import math

from fleetsim.jitter import Jitter


class Run:
    """`steps` steps from `start` (s), the first taking `first` seconds, each next `increment` more.

    `done` of them are accounted for, all are over at `end`.
    """

    __slots__ = ("done", "end", "first", "increment", "start", "steps")

    def __init__(self, start: float, first: float, increment: float, steps: int) -> None:
        self.start = start
        self.first = first
        self.increment = increment
        self.steps = steps
        self.done = 0
        self.end = start + (steps * first + increment * (steps * (steps - 1) * 0.5))

    def time(self, steps: int) -> float:
        """When so many of its steps have ended."""
        return self.start + (steps * self.first + self.increment * (steps * (steps - 1) * 0.5))

    def steps_by(self, now: float) -> int:
        """How many steps have ended at `now`, if it never stopped; the root may be off by one, the times decide."""
        elapsed = now - self.start
        base = self.first - 0.5 * self.increment
        steps = int(2 * elapsed / (base + math.sqrt(base * base + 2 * self.increment * elapsed)))
        if self.time(steps) > now:
            return steps - 1
        return steps + 1 if self.time(steps + 1) <= now else steps

    def cut(self, now: float) -> None:
        """Let it end with the step that is in progress at `now`."""
        self.steps = self.steps_by(now) + 1
        self.end = self.time(self.steps)

    def cut_to_window(self) -> None:
        """Let it end with the last step that starts within its first jitter window."""
        until = Jitter.window_end(self.start)
        if self.steps > 1 and self.time(self.steps - 1) >= until:
            self.cut(until)
            if self.time(self.steps - 1) == until:
                self.steps -= 1
                self.end = until
