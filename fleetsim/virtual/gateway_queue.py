"""A bounded queue at the gateway, ordered by priority."""

from __future__ import annotations

from collections import deque

from fleetsim.virtual.attempt import Attempt


class PriorityQueue:
    """Higher priorities leave first, within one the oldest. Full, it turns away the newest of the lowest priority.

    An attempt that is closed while it waits must be told to `discard`; it is dropped when its place comes up.
    """

    __slots__ = ("_capacity", "_lanes", "_live", "_priorities")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lanes: dict[int, deque[Attempt]] = {}
        self._priorities: list[int] = []  # falling
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def add(self, attempt: Attempt) -> Attempt | None:
        """Queue it; the attempt that had to go, which may be this one, or None."""
        turned_away = None
        if self._live >= self._capacity:
            turned_away = self._newest_of_lowest(attempt.priority) or attempt
            if turned_away is attempt:
                return attempt
        else:
            self._live += 1
        lane = self._lanes.get(attempt.priority)
        if lane is None:
            lane = self._lanes[attempt.priority] = deque()
            self._priorities = sorted(self._lanes, reverse=True)
        lane.append(attempt)
        return turned_away

    def head(self) -> Attempt | None:
        """Who is next, left in its place."""
        for priority in self._priorities:
            lane = self._lanes[priority]
            while lane:
                if lane[0].open:
                    return lane[0]
                lane.popleft()
        return None

    def take(self) -> None:
        """Remove the head."""
        head = self.head()
        if head is None:
            raise IndexError("expected a request that waits, found none: look at the head first")
        self._lanes[head.priority].popleft()
        self._live -= 1

    def discard(self) -> None:
        """One that waited was closed."""
        self._live -= 1

    def _newest_of_lowest(self, below: int) -> Attempt | None:
        """Remove and return the newest attempt of the lowest priority under `below`; None if there is none."""
        for priority in reversed(self._priorities):
            if priority >= below:
                return None
            lane = self._lanes[priority]
            while lane:
                attempt = lane.pop()
                if attempt.open:
                    return attempt
        return None
