"""BREAKER, ADMISSION and RETRY_BUDGET at one Envoy: keys of the runtime's admin layer, read and written."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

from actuators.envoy_admin import EnvoyAdmin
from actuators.envoy_runtime import decode, encode, in_force
from actuators.model import Action, ActuatorError, LeverKey, LeverReading, LeverValue
from actuators.writing import Ignored, eventually, holds, needs_write

UPTIME_SLACK_S = 2.0  # the uptime is in whole seconds and takes a moment to arrive


class EnvoyLimits:
    """The limits of one Envoy. The runtime has no compare-and-set: it is compared right before the write."""

    def __init__(
        self,
        admin: EnvoyAdmin,
        admin_layer: str,
        readback_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._admin_layer = admin_layer
        self._readback_s = readback_s
        self._monotonic = monotonic
        self._uptime: tuple[float, int] | None = None

    async def read(self, keys: dict[LeverKey, str]) -> tuple[LeverReading, ...]:
        """Readings of the keys, each with its cluster. Raises ActuatorError when Envoy does not tell.

        In the first read after a restart they carry a reason that says so: overrides do not outlive the
        process, so a limit that is off now may have been set and forgotten.
        """
        entries, uptime = await asyncio.gather(self._admin.runtime(), self._admin.uptime_s())
        readings = tuple(decode(key, cluster, entries, self._admin_layer) for key, cluster in keys.items())
        if not self._restarted(uptime):
            return readings
        reason = f"Envoy restarted {uptime} s ago and has lost the limits set before"
        return tuple(dataclasses.replace(reading, reason=reading.reason or reason) for reading in readings)

    async def write(self, action: Action, cluster: str) -> None:
        """Put the value in force; returns when Envoy shows it."""
        wanted = encode(action.key.lever, cluster, action.after)
        entries = await self._admin.runtime()
        if in_force(entries, wanted):
            return
        # A limit of two keys may be half there: its main key then reads as wanted, and writing completes it.
        needs_write(action, decode(action.key, cluster, entries, self._admin_layer))
        found: LeverValue = None

        async def settled() -> bool:
            nonlocal found
            entries = await self._admin.runtime()
            found = decode(action.key, cluster, entries, self._admin_layer).value
            return in_force(entries, wanted)

        try:
            await self._admin.modify_runtime(wanted)
        except ActuatorError as refusal:
            if await holds(settled):  # only the answer was lost
                return
            raise refusal
        if not await eventually(settled, self._readback_s):
            raise Ignored("look for a runtime layer above the admin one, or a proxy in front of it", found)

    def _restarted(self, uptime: int) -> bool:
        now = self._monotonic()
        previous, self._uptime = self._uptime, (now, uptime)
        if previous is None:
            return False
        expected = previous[1] + now - previous[0]
        return uptime < previous[1] or uptime < expected - UPTIME_SLACK_S
