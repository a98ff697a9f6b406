"""A proxy before Envoy's admin interface that can be told to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

import aiohttp
from aiohttp import web


class Manner(StrEnum):
    PASS = "pass"
    ERROR = "error"  # answers 500 to everything
    SWALLOW = "swallow"  # answers 200 to a write and forwards nothing
    HANG = "hang"  # never answers


class AdminProxy:
    """Forwards to the real admin interface while its manner is PASS. `writes`: those that came."""

    def __init__(self, session: aiohttp.ClientSession, admin_url: str) -> None:
        self.manner = Manner.PASS
        self.writes = 0
        self.url = ""
        self._session = session
        self._admin_url = admin_url
        self._release = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            self._release.set()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.writes += 1
        if self.manner is Manner.HANG:
            await self._release.wait()
        if self.manner is Manner.ERROR:
            return web.Response(status=500, text="overloaded")
        if self.manner is Manner.SWALLOW and request.method == "POST":
            return web.Response(text="OK\n")
        async with self._session.request(request.method, self._admin_url + request.path_qs) as response:
            return web.Response(body=await response.read(), status=response.status)
