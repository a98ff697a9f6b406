"""How the load's quantities go over time, as a scenario's load events say."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from fleetsim.events import LoadEvent
from fleetsim.traffic.rate import FloatArray


class Course:
    """A number over time: 1 at first; from each change on it goes straight to the new value, within its ramp."""

    def __init__(self, changes: Sequence[tuple[float, float, float]]) -> None:
        """Changes are (at_s, value, ramp_s) in order of time."""
        self._at = [0.0]
        self._from, self._to, self._ramp_s = [1.0], [1.0], [0.0]
        for at_s, value, ramp_s in changes:
            before = self.at(at_s)
            self._at.append(at_s)
            self._from.append(before)
            self._to.append(value)
            self._ramp_s.append(ramp_s)

    @property
    def level(self) -> bool:
        """Whether it stays 1 for ever."""
        return all(value == 1.0 for value in self._to)

    @property
    def peak(self) -> float:
        return max(self._to)

    def at(self, t: float) -> float:
        i = bisect_right(self._at, t) - 1
        ramp_s = self._ramp_s[i]
        done = 1.0 if t >= self._at[i] + ramp_s else (t - self._at[i]) / ramp_s
        return self._from[i] + (self._to[i] - self._from[i]) * done

    def over(self, times: FloatArray) -> FloatArray:
        """The same for an array of times."""
        starts, ramps = np.array(self._at), np.array(self._ramp_s)
        first, last = np.array(self._from), np.array(self._to)
        i = np.searchsorted(starts, times, side="right") - 1
        passed = times - starts[i]
        done = np.where(passed >= ramps[i], 1.0, passed / np.maximum(ramps[i], 1e-300))
        values: FloatArray = first[i] + (last[i] - first[i]) * done
        return values


class LoadCourse:
    """What the load events mean for one tenant. Each event replaces the one before it, in all it says."""

    def __init__(self, events: Sequence[LoadEvent], tenant: str) -> None:
        own = sorted((e for e in events if e.tenant in (None, tenant)), key=lambda e: e.at_s)
        self.factor = Course([(e.at_s, e.factor, e.ramp_s) for e in own])
        self.prompt_scale = Course([(e.at_s, e.prompt_scale, e.ramp_s) for e in own])
        self.always_shared = all(e.shared_prefixes for e in own)
        self._events = own
        self._starts = [e.at_s for e in own]

    def shared_prefixes(self, t: float) -> bool:
        event = self._event(t)
        return event is None or event.shared_prefixes

    def fanout(self, t: float, usual: int) -> int:
        """Calls at once of a workflow's step."""
        event = self._event(t)
        return usual if event is None or event.fanout is None else event.fanout

    def _event(self, t: float) -> LoadEvent | None:
        i = bisect_right(self._starts, t)
        return self._events[i - 1] if i else None
