"""A gateway that only takes notes, for tests of what is behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetsim.virtual.attempt import Attempt, Port
from fleetsim.virtual.server import Role
from fleetsim.virtual.simulation import Simulation


class NoClient:
    """Nobody waits for these attempts."""

    def first_token(self, attempt: Attempt) -> None:
        raise AssertionError("expected answers to go to the gateway")

    def finished(self, attempt: Attempt) -> None:
        raise AssertionError("expected answers to go to the gateway")

    def failed(self, attempt: Attempt, status: int, headers: dict[str, str]) -> None:
        raise AssertionError("expected answers to go to the gateway")


@dataclass
class FakeGateway:
    """`told`: (time, what, attempt) for each answer. `members`: roles by name; `draining`: names."""

    simulation: Simulation
    told: list[tuple[float, str, Attempt]] = field(default_factory=list)
    members: dict[str, tuple[str, Port, Role]] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)

    def first_token(self, attempt: Attempt) -> None:
        self.told.append((self.simulation.now, "first", attempt))

    def finished(self, attempt: Attempt) -> None:
        self.told.append((self.simulation.now, "finished", attempt))

    def failed(self, attempt: Attempt, status: int) -> None:
        self.told.append((self.simulation.now, str(status), attempt))

    def add(self, name: str, address: str, port: Port, role: Role = "serve") -> None:
        assert name not in self.members
        self.members[name] = (address, port, role)

    def remove(self, name: str) -> None:
        del self.members[name]
        self.draining.discard(name)

    def set_draining(self, name: str, draining: bool) -> None:
        assert name in self.members
        (self.draining.add if draining else self.draining.discard)(name)

    def of(self, attempt: Attempt) -> list[tuple[float, str]]:
        return [(t, what) for t, what, who in self.told if who is attempt]


def attempt(prompt_tokens: int = 500, output_tokens: int = 100, **fields: Any) -> Attempt:
    return Attempt(NoClient(), None, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **fields)
