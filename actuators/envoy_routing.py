"""WEIGHT and DRAIN at one Envoy: written to the EDS file, read back from Envoy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from actuators import eds
from actuators.eds import EndpointState
from actuators.envoy_admin import EnvoyAdmin, Host
from actuators.envoy_endpoints import value_of, with_value
from actuators.model import Action, ActuatorError, LeverKey, LeverReading, LeverValue
from actuators.values import same
from actuators.writing import Conflict, Ignored, eventually, needs_write


class EnvoyRouting:
    """The endpoints of one Envoy. The file says what is wanted, Envoy says what is."""

    def __init__(self, admin: EnvoyAdmin, path: Path, lock_s: float, readback_s: float) -> None:
        self._admin = admin
        self._path = path
        self._lock_s = lock_s
        self._readback_s = readback_s

    async def read(self, keys: dict[LeverKey, str]) -> tuple[LeverReading, ...]:
        """Readings of the keys, each with its cluster. Raises ActuatorError when Envoy does not tell."""
        clusters = await self._admin.hosts()
        return tuple(_reading(key, clusters.get(cluster, {})) for key, cluster in keys.items())

    async def write(self, action: Action, cluster: str) -> None:
        """Edit the file and wait until Envoy shows it. Nothing is written when Envoy cannot be read first."""
        key = action.key
        hosts = (await self._admin.hosts()).get(cluster, {})
        reading = _reading(key, hosts)
        if not reading.known:
            raise ActuatorError(reading.reason)
        serving = frozenset(address for address, host in hosts.items() if host.serves)
        before, after = await asyncio.to_thread(self._edit, action, cluster, serving)
        found: LeverValue = None

        async def settled() -> bool:
            nonlocal found
            reading = _reading(key, (await self._admin.hosts()).get(cluster, {}))
            found = reading.value
            return reading.known and same(key.lever, found, action.after)

        took = False
        try:
            took = await eventually(settled, self._readback_s)
        finally:
            if not took:
                await asyncio.to_thread(self._put_back, cluster, key.target, before, after)
        if not took:
            raise Ignored("the file was put back; check that Envoy watches it and accepts it", found)

    def _edit(self, action: Action, cluster: str, serving: frozenset[str]) -> tuple[EndpointState, EndpointState]:
        """Change the endpoint in the file under its lock; returns its state before and after. Blocks."""
        key = action.key
        with eds.locked(self._path, self._lock_s):
            file = eds.read(self._path)
            states = file.states(cluster)
            state = file.state(cluster, key.target)
            found = value_of(key.lever, state)
            if not needs_write(action, LeverReading(key, known=True, value=found)):
                return state, state
            try:
                wanted = with_value(key.lever, state, action.after)
            except ActuatorError as held:
                raise Conflict(str(held), found) from held
            others = [a for a, s in states.items() if a != key.target and s.health.serves and a in serving]
            if state.health.serves and not wanted.health.serves and not others:
                raise ActuatorError(
                    f"expected another endpoint of {cluster} in rotation, found none: the last one stays in"
                )
            file.put(cluster, key.target, wanted)
            eds.replace(self._path, file.document)
            return state, wanted

    def _put_back(self, cluster: str, address: str, before: EndpointState, after: EndpointState) -> None:
        """Undo an edit that did not take, so that it cannot come into force later unseen. Blocks."""
        with eds.locked(self._path, self._lock_s):
            file = eds.read(self._path)
            if before != after and file.states(cluster).get(address) == after:
                file.put(cluster, address, before)
                eds.replace(self._path, file.document)


def _reading(key: LeverKey, hosts: Mapping[str, Host]) -> LeverReading:
    host = hosts.get(key.target)
    if host is None:
        known = ", ".join(hosts) or "none"
        return LeverReading(
            key,
            known=False,
            reason=f"expected endpoint {key.target} at Envoy, found {known}: it is gone or not there yet",
        )
    return LeverReading(key, known=True, value=value_of(key.lever, host.state))
