"""Observations and a fleet of numbers for the policies' tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetsim.policies.policy import Policy
from fleetsim.scenario import Scenario
from fleetsim.truth import Truth
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.moves import MoveLog
from fleetsim.virtual.observation import EngineSeen, GatewaySeen, Observation, ReplicaSeen
from fleetsim.virtual.simulation import Simulation


def scenario(**sections: Any) -> Scenario:
    return Scenario.model_validate({"name": "test", "about": "", "truth": Truth(what="nothing"), **sections})


class Pool:
    """Replicas that are ready as soon as they are wanted, unless `slow`."""

    def __init__(self, replicas: int) -> None:
        self.wanted = self.ready = replicas

    def scale(self, replicas: int) -> None:
        self.wanted = self.ready = replicas


class Limits:
    def __init__(self, endpoints: Sequence[str] = ()) -> None:
        self.limits: dict[str, float | None] = {}
        self.weights = dict.fromkeys(endpoints, 100.0)

    def limit(self, lever: str) -> float | None:
        return self.limits.get(lever)

    def set_limit(self, lever: str, value: float | None) -> None:
        self.limits[lever] = value

    def weight(self, name: str) -> float | None:
        return self.weights.get(name)

    def set_weight(self, name: str, weight: float) -> None:
        self.weights[name] = weight


class Bench:
    """One policy over a fleet that only has numbers."""

    def __init__(self, policy: Policy, replicas: int = 4, bounds: tuple[int, int] = (1, 16)) -> None:
        self.policy = policy
        self.bounds = bounds
        self.simulation = Simulation()
        self.pool = Pool(replicas)
        self.gateway = Limits([f"engine-{i}" for i in range(replicas)])
        self.log = MoveLog()
        self.controls = Controls(self.simulation, self.pool, self.gateway, bounds, self.log)

    def look(self, now: float, pods: Sequence[ReplicaSeen], gateway: GatewaySeen | None = None) -> int:
        """Let the policy decide on these pods; the replicas it wants then."""
        self.simulation.now = now
        seen = Observation(now, self.pool.wanted, *self.bounds, tuple(pods), gateway)
        self.policy.decide(seen, self.controls)
        return self.pool.wanted

    def uniform(self, now: float, **engine: float | None) -> int:
        """The same with every wanted replica ready and alike."""
        return self.look(now, ready(now, self.pool.wanted, **engine))


def ready(now: float, count: int, **engine: float | None) -> list[ReplicaSeen]:
    return [pod(i, "ready", EngineSeen(now, **engine)) for i in range(count)]


def pod(index: int, state: str, engine: EngineSeen | None = None) -> ReplicaSeen:
    return ReplicaSeen(f"engine-{index}", state, 0.0, engine)
