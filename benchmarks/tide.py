"""A fleet that never comes to rest: storm, ebb, storm again, so that an agent has limits and replicas to move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from fleetsim.conductor import Embedded

# As retry-storm-no-abort, with fewer engines, so that several may run beside the rest of a test suite.
SCENARIO = """
name: tide
about: All GPUs 2.5 times slower, then hardly any load, over and over.
truth: {what: "retry-storm while it lasts, then more replicas than are needed"}
seed: 1
load: 0.9
engines: 2
max_replicas: 4
cold_start_s: 1
serving: {abort_on_disconnect: false, headers_at_first_token: true}
clients: {timeout_s: 5, stream: true, retries: 2}
"""
SLOWER = 2.0
STORM_LOAD, EBB_LOAD = 2.0, 0.1
STORM_S, EBB_S = 15.0, 25.0
LOOK_S = 0.5


class Tide:
    """Storm for its time, ebb until the first number of replicas is back or for its time."""

    def __init__(self, running: Embedded, session: aiohttp.ClientSession) -> None:
        self._admin = running.fleet["admin_url"]
        self._clients = running.clients["control_url"]
        self._low = int(running.fleet["engines"])
        self._session = session

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Start the clients and go up and down while the context lasts."""
        await self._call("POST", f"{self._clients}/start", {})
        going = asyncio.create_task(self._flow())
        try:
            yield
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)

    async def _flow(self) -> None:
        while True:
            await self._call("PUT", f"{self._clients}/load", {"factor": STORM_LOAD})
            await self._call("POST", f"{self._admin}/admin/faults", {"kind": "slow", "g": SLOWER})
            await asyncio.sleep(STORM_S)
            await self._call("PUT", f"{self._clients}/load", {"factor": EBB_LOAD})
            await self._call("POST", f"{self._admin}/admin/faults", {"kind": "recover"})
            await self._ebbed()

    async def _ebbed(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + EBB_S
        while loop.time() < until:
            fleet = await self._call("GET", f"{self._admin}/admin/fleet", None)
            if fleet["target"] <= self._low:
                return
            await asyncio.sleep(LOOK_S)

    async def _call(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async with self._session.request(method, url, json=body) as answer:
            answer.raise_for_status()
            document: dict[str, Any] = await answer.json()
            return document
