"""Backend `embedded`: replicas of the embedded fleet, over its own admin API like any other system's.

`GET /admin/fleet`, `PUT /admin/scale` and `PUT /admin/replicas/{id}/drain`; each write has a request id that
the fleet carries out at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from actuators.model import Action, ActuatorError, Lever, LeverKey, LeverReading, LeverValue, Outcome
from actuators.options import HttpUrl, Options, Seconds, parse_options
from actuators.rest import Refused, RestClient
from actuators.values import same
from actuators.writing import Ignored, eventually, holds, moved, needs_write, outcome

HTTP_CONFLICT = 409
_NO_LONGER_RUNNING = ("stopped", "crashed")


class EmbeddedOptions(Options):
    """Options of the backend."""

    admin_url: HttpUrl
    timeout_s: Seconds = 2.0
    readback_s: Seconds = 2.0


class EmbeddedBackend:
    """SCALE: the value is the replicas wanted. DRAIN: the target is a replica's name, id or address."""

    levers: frozenset[Lever] = frozenset({Lever.SCALE, Lever.DRAIN})

    def __init__(self, name: str, options: EmbeddedOptions) -> None:
        self.name = name
        self._rest = RestClient(options.admin_url, options.timeout_s)
        self._readback_s = options.readback_s
        self._turn = asyncio.Lock()

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, object]) -> EmbeddedBackend:
        return cls(name, parse_options(EmbeddedOptions, name, options))

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        if not keys:
            return ()
        async with self._turn:
            try:
                fleet = await self._fleet()
            except ActuatorError as error:
                return tuple(LeverReading(key, known=False, reason=str(error)) for key in keys)
        return tuple(_reading(key, fleet) for key in keys)

    async def apply(self, action: Action, now: float) -> Outcome:
        async with self._turn:
            return await outcome(action, now, self.levers, self._write)

    async def close(self) -> None:
        await self._rest.close()

    async def _fleet(self) -> dict[str, Any]:
        return await self._rest.request_json("GET", "/admin/fleet")

    async def _write(self, action: Action) -> None:
        key = action.key
        fleet = await self._fleet()
        if not needs_write(action, _reading(key, fleet)):
            return
        found: LeverValue = None

        async def settled() -> bool:
            nonlocal found
            reading = _reading(key, await self._fleet())
            found = reading.value
            # A replica that drained and stopped in the meantime has done what was asked.
            gone = key.lever is Lever.DRAIN and not reading.known and bool(action.after)
            return gone or (reading.known and same(key.lever, found, action.after))

        path, body = _request(action, fleet)
        try:
            await self._rest.request("PUT", path, body)
        except Refused as refusal:
            if refusal.status == HTTP_CONFLICT:
                reading = _reading(key, await self._fleet())
                raise moved(action, reading.value) from refusal
            raise
        except ActuatorError:
            if await holds(settled):  # only the answer was lost
                return
            raise
        if not await eventually(settled, self._readback_s):
            raise Ignored("the fleet accepted it and did nothing; see GET /admin/log", found)


def _request(action: Action, fleet: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
    """Path and body of the write."""
    key = action.key
    if key.lever is Lever.SCALE:
        return "/admin/scale", {
            "pool": key.pool,
            "replicas": _whole(action.after),
            "expected": _whole(action.before),
            "request_id": action.id,
        }
    replica = _replica(key.target, fleet)
    return f"/admin/replicas/{quote(str(replica['id']), safe='')}/drain", {
        "drain": bool(action.after),
        "request_id": action.id,
    }


def _whole(value: LeverValue) -> int | None:
    return None if value is None else round(value)


def _replica(target: str, fleet: Mapping[str, Any]) -> Mapping[str, Any]:
    for replica in fleet["replicas"]:
        if target in (replica["id"], replica["name"], replica.get("address")):
            return dict(replica)
    names = ", ".join(str(replica["name"]) for replica in fleet["replicas"]) or "none"
    raise ActuatorError(f"expected replica {target}, found {names}: it is gone or the name is wrong")


def _reading(key: LeverKey, fleet: Mapping[str, Any]) -> LeverReading:
    try:
        if fleet["pool"] != key.pool:
            raise ActuatorError(f"expected pool {key.pool}, found {fleet['pool']}: give this pool's admin_url")
        if key.lever is Lever.SCALE:
            return LeverReading(key, known=True, value=float(fleet["target"]), ready=int(fleet["ready"]))
        if key.lever is not Lever.DRAIN:
            raise ActuatorError(f"expected scale or drain, found {key.lever}: the fleet has no such lever")
        state = str(_replica(key.target, fleet)["state"])
        if state in _NO_LONGER_RUNNING:
            raise ActuatorError(f"expected replica {key.target} running, found it {state}: leave it")
        return LeverReading(key, known=True, value=1.0 if state == "draining" else 0.0)
    except ActuatorError as error:
        return LeverReading(key, known=False, reason=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return LeverReading(
            key,
            known=False,
            reason=f"expected pool, target, ready and replicas from GET /admin/fleet, found {error!r}: "
            "check that admin_url is the fleet's admin API",
        )
