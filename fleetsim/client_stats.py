"""Rolling client-side figures for whoever watches a run: what is offered, attempted and answered."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from fleetsim.request import Outcome, Record

WINDOW_S = 10.0


class ClientStats:
    """Events of the last 10 s and totals since the start; `clock` gives seconds from the clients' start."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, str]] = deque()
        self._totals: Counter[str] = Counter()

    def attempt(self, taken: int) -> None:
        self._add("attempts")
        if taken == 0:
            self._add("first_attempts")

    def finished(self, record: Record) -> None:
        self._add(record.outcome.value)

    def _add(self, what: str) -> None:
        self._totals[what] += 1
        self._recent.append((self._clock(), what))
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - WINDOW_S
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()

    def summary(self) -> dict[str, Any]:
        """Rates per second over the window, amplification null while nothing was offered."""
        now = self._clock()
        self._forget()
        recent = Counter(what for _, what in self._recent)
        span = min(WINDOW_S, now) if now > 0 else WINDOW_S
        first = recent["first_attempts"]
        return {
            "t": now,
            "window_s": WINDOW_S,
            "offered_rps": first / span,
            "attempts_rps": recent["attempts"] / span,
            "goodput_rps": recent[Outcome.OK] / span,
            "amplification": recent["attempts"] / first if first else None,
            "totals": dict(self._totals),
        }
