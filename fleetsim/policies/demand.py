"""What a scenario's timeline means for capacity: how much work comes, and how many replicas are lost to faults."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fleetsim.events import EngineEvent, Event, LoadEvent, NodeEvent, ReclaimEvent
from fleetsim.scenario import Scenario
from fleetsim.settings import Tenant
from fleetsim.virtual.courses import LoadCourse


@dataclass(frozen=True, slots=True)
class Loss:
    """`share` of a replica is gone from `start` to `end`; `endpoint`: which, where taking it out helps."""

    start: float
    end: float
    share: float
    endpoint: str


class Work:
    """Offered work in shares of the starting engines' capacity: calls times prompt length."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        events = [event for event in scenario.timeline if isinstance(event, LoadEvent)]
        tenants = scenario.tenants or (Tenant(name=""),)
        total = sum(tenant.share for tenant in tenants)
        self._courses = [(tenant.share / total, LoadCourse(events, tenant.name)) for tenant in tenants]

    def at(self, t: float) -> float:
        usual = 1 if self._scenario.workflow is None else self._scenario.workflow.fanout
        return self._rate(t) * sum(
            share * course.factor.at(t) * course.prompt_scale.at(t) * course.fanout(t, usual) / usual
            for share, course in self._courses
        )

    def _rate(self, t: float) -> float:
        """A day's swing keeps the run's mean, as the traffic's does (see fleetsim.virtual.offered)."""
        traffic, end = self._scenario.traffic, self._scenario.duration_s
        if traffic.rate == "constant":
            return self._scenario.load
        turn = 2 * math.pi / traffic.period_s
        mean = 1 + traffic.swing * (1 - math.cos(turn * end)) / (turn * end)
        return self._scenario.load / mean * (1 + traffic.swing * math.sin(turn * t))


def losses(scenario: Scenario) -> tuple[Loss, ...]:
    """Of engines, nodes and reclaimed replicas, in order of the timeline. A fault without an end lasts to the end."""
    return tuple(loss for event in scenario.timeline for loss in _of(scenario, event))


def _of(scenario: Scenario, event: Event) -> Iterator[Loss]:
    if isinstance(event, EngineEvent) and event.kind != "recover":
        names = [f"engine-{i}" for i in range(scenario.engines)] if event.targets == "all" else event.targets
        for name in names:
            end = _recovery(scenario, event, name)
            yield Loss(event.at_s, end, _share(event), name)
    elif isinstance(event, NodeEvent) and event.state != "well":
        end = next(
            (e.at_s for e in _later(scenario, event) if isinstance(e, NodeEvent) and e.node == event.node),
            scenario.duration_s,
        )
        first = event.node * scenario.cluster.replicas_per_node
        for index in range(first, min(first + scenario.cluster.replicas_per_node, scenario.engines)):
            share = 1.0 if event.state == "down" else max(0.0, 1 - 1 / event.g)
            yield Loss(event.at_s, end, share, f"engine-{index}")
    elif isinstance(event, ReclaimEvent):
        # The pool replaces what is reclaimed; until then it is missing.
        end = event.at_s + event.notice_s + scenario.cold_start_s
        for _ in event.targets:
            yield Loss(event.at_s, end, 1.0, "")


def _later(scenario: Scenario, event: EngineEvent | NodeEvent) -> list[Event]:
    return [e for e in scenario.timeline if e.at_s > event.at_s]


def _recovery(scenario: Scenario, event: EngineEvent, name: str) -> float:
    if event.kind == "crash" and scenario.cluster.restart_s is not None:
        return event.at_s + scenario.cluster.restart_s + scenario.cold_start_s
    for later in _later(scenario, event):
        if isinstance(later, EngineEvent) and (later.targets == "all" or name in later.targets):
            return later.at_s
    return scenario.duration_s


def _share(event: EngineEvent) -> float:
    if event.kind in ("hang", "crash"):
        return 1.0
    return max(0.0, 1 - 1 / (event.g * (event.g_decode + event.g_prefill) / 2))
