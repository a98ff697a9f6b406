"""The levers of the fleet in virtual time, as the real systems' APIs offer them. Who acts says so and is logged."""

from __future__ import annotations

from typing import Protocol

from fleetsim.file_sd import POOL
from fleetsim.virtual.moves import Moved, MoveLog
from fleetsim.virtual.simulation import Simulation


class ScaleTarget(Protocol):
    """The pool's part: `wanted` replicas, `ready` ones."""

    wanted: int

    @property
    def ready(self) -> int: ...

    def scale(self, replicas: int) -> None: ...


class LimitTarget(Protocol):
    """The gateway's part. Limits: breaker (requests in flight), admission (percent let in), retry_budget (percent)."""

    def limit(self, lever: str) -> float | None: ...

    def set_limit(self, lever: str, value: float | None) -> None: ...

    def weight(self, name: str) -> float | None:
        """1 to 100, 0 is out; None when there is no such endpoint."""

    def set_weight(self, name: str, weight: float) -> None: ...


class Controls:
    """Every write goes through here. ValueError for what a real API would refuse."""

    def __init__(
        self, simulation: Simulation, pool: ScaleTarget, gateway: LimitTarget, bounds: tuple[int, int], log: MoveLog
    ) -> None:
        self._simulation = simulation
        self._pool = pool
        self._gateway = gateway
        self._bounds = bounds
        self.log = log

    @property
    def wanted(self) -> int:
        return self._pool.wanted

    @property
    def ready(self) -> int:
        return self._pool.ready

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most replicas that may be asked for."""
        return self._bounds

    def scale(self, actor: str, replicas: int, reason: str = "") -> None:
        """Ask for a number of replicas within the bounds."""
        low, high = self._bounds
        if not low <= replicas <= high:
            raise ValueError(f"expected {low} to {high} replicas, found {replicas}: ask for a number in between")
        before = self._pool.wanted
        self._note(actor, "scale", POOL, float(before), float(replicas), reason)
        if replicas != before:
            self._pool.scale(replicas)

    def limit(self, lever: str) -> float | None:
        return self._gateway.limit(lever)

    def set_limit(self, actor: str, lever: str, value: float | None, reason: str = "") -> None:
        before = self._gateway.limit(lever)
        self._gateway.set_limit(lever, value)
        self._note(actor, lever, POOL, before, value, reason)

    def weight(self, name: str) -> float | None:
        return self._gateway.weight(name)

    def set_weight(self, actor: str, name: str, weight: float, reason: str = "") -> None:
        before = self._gateway.weight(name)
        if before is None:
            raise ValueError(f"expected an endpoint of the gateway, found {name!r}: it is gone or not ready yet")
        self._gateway.set_weight(name, weight)
        self._note(actor, "weight", name, before, weight, reason)

    def _note(
        self, actor: str, lever: str, target: str, before: float | None, after: float | None, reason: str
    ) -> None:
        self.log.add(Moved(self._simulation.now, actor, lever, target, before, after, reason))
