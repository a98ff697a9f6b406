"""A run that is over: everything the score and the reports need, and nothing a controller could have seen more of."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.scenario import Scenario
from fleetsim.virtual.moves import Moved
from fleetsim.virtual.record import CallRecord, TaskRecord


@dataclass(frozen=True, slots=True)
class Allocation:
    """GPUs held by a replica from `start` to `end` (seconds), whatever it did with them."""

    replica: str
    gpus: int
    price_usd_per_gpu_hour: float
    start: float
    end: float

    @property
    def cost_usd(self) -> float:
        return (self.end - self.start) * self.gpus * self.price_usd_per_gpu_hour / 3600


@dataclass(frozen=True, slots=True)
class Told:
    """An entry of the timeline: `kind` is fault (of the scenario), action, effect (its verdict) or finding."""

    t: float
    kind: str
    lever: str | None
    target: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """`capacity_rps` is what the fleet could finish at saturation when it started, `offered_rps` the mean asked for."""

    scenario: Scenario
    policy: str
    seed: int
    load: float
    duration_s: float
    capacity_rps: float
    offered_rps: float
    calls: tuple[CallRecord, ...]
    tasks: tuple[TaskRecord, ...]
    allocations: tuple[Allocation, ...]
    moves: tuple[Moved, ...]
    timeline: tuple[Told, ...]
    generated_tokens: int  # by all engines, wanted or not
