"""What a policy is: a look, a decision, a write. And what is told of it: where its formula comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleetsim.scenario import Scenario
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import Observation


class Policy(Protocol):
    """A controller of somebody else's. It sees what exporters and the cluster's API show, nothing more."""

    name: str
    period_s: float

    def prepare(self, scenario: Scenario) -> Scenario:
        """The scenario with the settings of gateway and clients that the policy brings with it."""

    def decide(self, seen: Observation, controls: Controls) -> None:
        """Called every `period_s`; writes through `controls` under the policy's name, with a reason."""


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """`missing`: what it makes of data that is not there. `simplified`: where we do less than the original."""

    name: str
    title: str
    decides_by: str
    citation: str
    defaults: dict[str, str]
    missing: str
    simplified: str
    build: Callable[[Scenario], Policy]


class Untouched:
    """The half of a policy that leaves gateway and clients as the scenario has them."""

    def prepare(self, scenario: Scenario) -> Scenario:
        return scenario
