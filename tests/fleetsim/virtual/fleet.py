"""A pool of replicas on a clock, behind a gateway that only takes notes."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from fleetsim.events import Event
from fleetsim.scenario import Scenario
from fleetsim.truth import Truth
from fleetsim.virtual.pool import Pool
from fleetsim.virtual.replica import Replica
from fleetsim.virtual.simulation import Simulation
from tests.fleetsim.virtual.fake_gateway import FakeGateway


def scenario(**fields: Any) -> Scenario:
    plain = {"name": "t", "about": "t", "truth": Truth(what="t"), "engines": 2, "max_replicas": 4, "cold_start_s": 60.0}
    return Scenario.model_validate({**plain, **fields})


class Fleet:
    def __init__(self, *, seed: int = 1, g: float = 1.0, origin: float = 0.0, **fields: Any) -> None:
        self.simulation = Simulation()
        self.gateway = FakeGateway(self.simulation)
        self.pool = Pool(self.simulation, scenario(**fields), self.gateway, seed=seed, g=g, origin=origin)
        self.pool.start()

    def run(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now + seconds)

    @property
    def states(self) -> dict[str, str]:
        return {r.name: r.state.value for r in self.pool.live}

    def __getitem__(self, name: str) -> Replica:
        found = self.pool.find(name)
        assert found is not None
        return found

    def inflict(self, kind: str, **fields: Any) -> list[str]:
        """Let a timeline's event happen now."""
        event = TypeAdapter[Any](Event).validate_python({"at_s": 0.0, "kind": kind, **fields})
        return self.pool.inflict(event)

    def crash(self, *names: str) -> None:
        self.inflict("crash", targets=list(names))
