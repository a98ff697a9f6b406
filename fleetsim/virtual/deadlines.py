"""Time-outs that all last equally long: cheaper than a call of the simulation each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.simulation import Simulation


class Deadlines:
    """Calls `due(attempt)` a constant time after each `add`, unless the attempt is closed by then.

    The same delay for all means that they come due in the order of their adding, so one call of the simulation, for the
    first that is still open, is enough: most requests end long before their time-out and never cost one.
    """

    __slots__ = ("_armed", "_delay_s", "_due", "_simulation", "_waiting")

    def __init__(self, simulation: Simulation, delay_s: float, due: Callable[[Attempt], None]) -> None:
        self._simulation = simulation
        self._delay_s = delay_s
        self._due = due
        self._waiting: deque[tuple[float, Attempt]] = deque()
        self._armed = False

    def add(self, attempt: Attempt) -> None:
        at = self._simulation.now + self._delay_s
        self._waiting.append((at, attempt))
        if not self._armed:
            self._armed = True
            self._simulation.at(at, self._ring)

    def _ring(self) -> None:
        waiting, now = self._waiting, self._simulation.now
        while waiting:
            at, attempt = waiting[0]
            if attempt.open and at > now:
                self._simulation.at(at, self._ring)
                return
            waiting.popleft()
            if attempt.open:
                self._due(attempt)
        self._armed = False
