"""Stabilisation and rate limits of the Kubernetes HPA (autoscaling/v2 `behavior`), used by all who act through one.

Kubernetes, pkg/controller/podautoscaler/horizontal.go: recommendations of a window are kept; upwards the lowest of
them counts, downwards the highest. Then policies limit how far replicas may move from where a period began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `value` pods, or percent of the replicas at the period's start, within `period_s`."""

    kind: Literal["pods", "percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Rules:
    """One direction. Of several limits the one that allows most counts (`selectPolicy: Max`)."""

    window_s: float
    limits: tuple[Limit, ...]


DEFAULT_UP = Rules(0.0, (Limit("pods", 4, 15.0), Limit("percent", 100, 15.0)))
DEFAULT_DOWN = Rules(300.0, (Limit("percent", 100, 15.0),))

Dated = Iterable[tuple[float, int]]


def stabilised(history: Dated, now: float, current: int, desired: int, up_s: float, down_s: float) -> int:
    """`history`: (time, recommendation) before this one."""
    lowest = highest = desired
    for time, replicas in history:
        if time > now - up_s:
            lowest = min(lowest, replicas)
        if time > now - down_s:
            highest = max(highest, replicas)
    return min(max(current, lowest), highest)


def at_most(current: int, changes: Dated, now: float, limits: Sequence[Limit]) -> int:
    """The most replicas the upward limits allow. `changes`: (time, replicas added or, negative, taken away)."""
    allowed = []
    for limit in limits:
        start = _at_start(current, changes, now, limit.period_s)
        allowed.append(start + limit.value if limit.kind == "pods" else math.ceil(start * (100 + limit.value) / 100))
    return max(current, *allowed)


def at_least(current: int, changes: Dated, now: float, limits: Sequence[Limit]) -> int:
    """The fewest replicas the downward limits allow."""
    allowed = []
    for limit in limits:
        start = _at_start(current, changes, now, limit.period_s)
        allowed.append(start - limit.value if limit.kind == "pods" else int(start * (100 - limit.value) / 100))
    return min(current, *allowed)


def _at_start(current: int, changes: Dated, now: float, period_s: float) -> int:
    return current - sum(delta for time, delta in changes if time > now - period_s)


class Behaviour:
    """Recommendations and changes of one scaled object. `settle` is called once a recommendation."""

    def __init__(self, up: Rules = DEFAULT_UP, down: Rules = DEFAULT_DOWN) -> None:
        self._up = up
        self._down = down
        self._keep_s = max(up.window_s, down.window_s, *(limit.period_s for limit in (*up.limits, *down.limits)))
        self._recommended: list[tuple[float, int]] | None = None
        self._changes: list[tuple[float, int]] = []

    def settle(self, now: float, current: int, desired: int, low: int, high: int) -> int:
        """Replicas to ask for, from `low` to `high`. The caller is taken to ask for them at once."""
        since = now - self._keep_s
        self._changes = [c for c in self._changes if c[0] > since]
        if self._recommended is None:
            # The count found at first is a recommendation too: a fresh controller does not scale down at once.
            self._recommended = [(now, current)]
        history = [r for r in self._recommended if r[0] > since]
        replicas = stabilised(history, now, current, desired, self._up.window_s, self._down.window_s)
        self._recommended = [*history, (now, desired)]
        if replicas > current:
            replicas = min(replicas, at_most(current, self._changes, now, self._up.limits))
        elif replicas < current:
            replicas = max(replicas, at_least(current, self._changes, now, self._down.limits))
        replicas = max(low, min(replicas, high))
        if replicas != current:
            self._changes.append((now, replicas - current))
        return replicas
