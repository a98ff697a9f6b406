"""Backend of the fleet in virtual time: the levers that the embedded fleet has over Envoy and its admin API."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actuators.model import Action, ActuatorError, Lever, LeverKey, LeverReading, Outcome
from actuators.values import canonical, same
from actuators.writing import Ignored, needs_write, outcome
from fleetsim.file_sd import POOL
from fleetsim.virtual.controls import Controls

LIMITS = (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)


class VirtualBackend:
    """SCALE and the limits of pool `default`, and WEIGHT of its endpoints by address.

    `engines`: the fleet's names of the endpoints by address. Moves are made in the name of `actor`.
    """

    levers: frozenset[Lever] = frozenset({Lever.SCALE, Lever.WEIGHT, *LIMITS})

    def __init__(self, name: str, controls: Controls, engines: Callable[[], Mapping[str, str]], actor: str) -> None:
        self.name = name
        self._controls = controls
        self._engines = engines
        self._actor = actor
        self._done: set[str] = set()

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, object]) -> VirtualBackend:
        raise ActuatorError(
            f"actuator {name!r}: expected a backend of a fleet outside, found that of the simulated one: "
            "play it with `inferostat simulate`"
        )

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        engines = self._engines()
        return tuple(self._reading(key, engines) for key in keys)

    async def apply(self, action: Action, now: float) -> Outcome:
        return await outcome(action, now, self.levers, self._write)

    async def close(self) -> None:
        """Nothing is open."""

    def _reading(self, key: LeverKey, engines: Mapping[str, str]) -> LeverReading:
        if key.pool != POOL:
            return _unknown(key, f"expected pool {POOL}, found {key.pool}: the fleet has no other")
        if key.lever is Lever.SCALE:
            return LeverReading(key, known=True, value=float(self._controls.wanted), ready=self._controls.ready)
        if key.lever in LIMITS:
            return LeverReading(key, known=True, value=canonical(key.lever, self._controls.limit(key.lever.value)))
        if key.lever is not Lever.WEIGHT:
            return _unknown(key, f"expected one of {', '.join(sorted(self.levers))}, found {key.lever}")
        name = engines.get(key.target)
        weight = None if name is None else self._controls.weight(name)
        if weight is None:
            found = ", ".join(engines) or "none"
            return _unknown(
                key, f"expected endpoint {key.target} at the gateway, found {found}: it is gone or not ready"
            )
        return LeverReading(key, known=True, value=canonical(key.lever, weight))

    async def _write(self, action: Action) -> None:
        if action.id in self._done:
            return
        engines = self._engines()
        if not needs_write(action, self._reading(action.key, engines)):
            return
        try:
            self._put(action, engines)
        except ValueError as refusal:
            raise ActuatorError(str(refusal)) from refusal
        self._done.add(action.id)
        found = self._reading(action.key, engines)
        if not found.known or not same(action.key.lever, found.value, action.after):
            raise Ignored("the fleet accepted it and did nothing", found.value)

    def _put(self, action: Action, engines: Mapping[str, str]) -> None:
        """Write the value. ValueError for what the fleet refuses."""
        key, value = action.key, canonical(action.key.lever, action.after)
        if key.lever in LIMITS:
            self._controls.set_limit(self._actor, key.lever.value, value, action.reason)
            return
        assert value is not None  # of SCALE out of range, and for WEIGHT canonical
        if key.lever is Lever.SCALE:
            self._controls.scale(self._actor, round(value), action.reason)
            return
        if value == 0 and not any(self._controls.weight(name) for at, name in engines.items() if at != key.target):
            raise ActuatorError("expected another endpoint in rotation, found none: the last one stays in")
        self._controls.set_weight(self._actor, engines[key.target], value, action.reason)


def _unknown(key: LeverKey, reason: str) -> LeverReading:
    return LeverReading(key, known=False, reason=reason)
