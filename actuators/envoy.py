"""Backend `envoy`: limits by the admin runtime layer, weights and draining by the file EDS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from actuators.envoy_admin import EnvoyAdmin
from actuators.envoy_endpoints import ENDPOINT_LEVERS
from actuators.envoy_limits import EnvoyLimits
from actuators.envoy_routing import EnvoyRouting
from actuators.envoy_runtime import RUNTIME_LEVERS
from actuators.model import Action, ActuatorError, Lever, LeverKey, LeverReading, Outcome
from actuators.options import HttpUrl, Options, Seconds, parse_options
from actuators.writing import outcome


class EnvoyOptions(Options):
    """Options of the backend. Without `eds_path` it moves no weights and drains nothing."""

    admin_url: HttpUrl
    clusters: dict[str, str]  # pool -> cluster
    eds_path: Path | None = None
    admin_layer: str = "admin"  # name of the admin_layer in Envoy's layered_runtime
    timeout_s: Seconds = 2.0  # of one admin call, and of waiting for the file's lock
    readback_s: Seconds = 3.0  # Envoy takes up to about a second to notice a replaced file


class EnvoyBackend:
    """One Envoy. For WEIGHT and DRAIN the target of a key is the endpoint's `host:port`."""

    def __init__(self, name: str, options: EnvoyOptions) -> None:
        self.name = name
        self.levers: frozenset[Lever] = RUNTIME_LEVERS
        self._clusters = options.clusters
        self._admin = EnvoyAdmin(options.admin_url, options.timeout_s)
        self._limits = EnvoyLimits(self._admin, options.admin_layer, options.readback_s)
        self._routing: EnvoyRouting | None = None
        if options.eds_path is not None:
            self.levers = RUNTIME_LEVERS | ENDPOINT_LEVERS
            self._routing = EnvoyRouting(self._admin, options.eds_path, options.timeout_s, options.readback_s)
        self._turn = asyncio.Lock()

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, object]) -> EnvoyBackend:
        """Build from configuration; raises ActuatorError with every wrong option."""
        return cls(name, parse_options(EnvoyOptions, name, options))

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        """What Envoy has now, in the order of the keys: three calls at most, however many keys.

        The limits' first reading after Envoy restarted has a `reason` although it is known (see EnvoyLimits).
        """
        found: dict[LeverKey, LeverReading] = {}
        placed: dict[LeverKey, str] = {}
        for key in keys:
            try:
                placed[key] = self._cluster(key)
            except ActuatorError as error:
                found[key] = LeverReading(key, known=False, reason=str(error))
        limits = {key: cluster for key, cluster in placed.items() if key.lever in RUNTIME_LEVERS}
        endpoints = {key: cluster for key, cluster in placed.items() if key.lever in ENDPOINT_LEVERS}
        async with self._turn:
            parts = [_read(self._limits.read, limits)]
            if self._routing is not None:
                parts.append(_read(self._routing.read, endpoints))
            for part in await asyncio.gather(*parts):
                found.update((reading.key, reading) for reading in part)
        return tuple(found[key] for key in keys)

    async def apply(self, action: Action, now: float) -> Outcome:
        """Compare, write, read back from Envoy. Nothing is written when Envoy cannot be read first."""
        async with self._turn:
            return await outcome(action, now, self.levers, self._write)

    async def close(self) -> None:
        await self._admin.close()

    async def _write(self, action: Action) -> None:
        cluster = self._cluster(action.key)
        if self._routing is not None and action.key.lever in ENDPOINT_LEVERS:
            await self._routing.write(action, cluster)
        else:
            await self._limits.write(action, cluster)

    def _cluster(self, key: LeverKey) -> str:
        if key.lever not in self.levers:
            raise ActuatorError(f"expected one of {', '.join(sorted(self.levers))}, found {key.lever}")
        if key.pool not in self._clusters:
            raise ActuatorError(
                f"expected a cluster for pool {key.pool!r}, found {', '.join(self._clusters) or 'none'}: "
                f"add it to the clusters of actuator {self.name}"
            )
        return self._clusters[key.pool]


async def _read(
    reader: Callable[[dict[LeverKey, str]], Awaitable[tuple[LeverReading, ...]]],
    keys: dict[LeverKey, str],
) -> tuple[LeverReading, ...]:
    if not keys:
        return ()
    try:
        return await reader(keys)
    except ActuatorError as error:
        return tuple(LeverReading(key, known=False, reason=str(error)) for key in keys)
