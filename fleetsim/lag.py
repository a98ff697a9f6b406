"""How late this process' event loop is: times of a fleet on a starved machine are not honest."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable

PROBE_S = 0.02
WINDOW_S = 10.0
WARN_ABOVE_S = 0.05


def p99(values: list[float]) -> float:
    """The smallest value that at least 99 % do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -(-99 * len(ordered) // 100) - 1)]


class LoopLag:
    """Sleeps for 20 ms again and again and keeps by how much each sleep overshot, for the last 10 s."""

    def __init__(self, warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr)) -> None:
        self._late: deque[float] = deque(maxlen=int(WINDOW_S / PROBE_S))
        self._warn = warn
        self._warned = False

    @property
    def p99_s(self) -> float:
        return p99(list(self._late))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ticks = 0
        while True:
            start = loop.time()
            await asyncio.sleep(PROBE_S)
            self._late.append(max(0.0, loop.time() - start - PROBE_S))
            ticks += 1
            if ticks % int(1 / PROBE_S) == 0:
                self.judge()

    def judge(self) -> None:
        """Warn when the lag passes 50 ms, and once more when it is over."""
        late = self.p99_s
        if (late > WARN_ABOVE_S) != self._warned:
            self._warned = not self._warned
            state = "the machine is too slow for honest times" if self._warned else "times are honest again"
            self._warn(f"fleet: event loop lag p99 {1000 * late:.0f} ms (limit 50 ms): {state}")
