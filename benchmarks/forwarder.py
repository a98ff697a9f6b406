"""A forwarder in front of an admin interface: it counts the writes that arrive, and can strike at the worst moments."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web


@dataclass(frozen=True, slots=True)
class Write:
    """A write that the system behind accepted (HTTP 200). `at` is unix seconds."""

    at: float
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)


class CountingForwarder:
    """Passes requests on. `is_write` tells which of them move something; those that were accepted are kept.

    `before` is called when a write has left its sender, instead of passing it on; `after` when the system has
    it but the sender does not have the answer. `delay_s`: how long a write takes on the way there and back.
    `in_flight`: writes that came in and are not answered yet, whether or not their sender still lives.
    """

    def __init__(self, upstream: str, session: aiohttp.ClientSession, is_write: Callable[[web.Request], bool]) -> None:
        self.url = ""
        self.written: list[Write] = []
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.in_flight = 0
        self._upstream = upstream
        self._session = session
        self._is_write = is_write

    async def handle(self, request: web.Request) -> web.Response:
        sent = await request.read()
        if not self._is_write(request):
            return await self._pass_on(request, sent, is_write=False)
        self.in_flight += 1
        try:
            await asyncio.sleep(self.delay_s())
            if self.before is not None:
                self.before()
                return web.Response(status=503)
            answer = await self._pass_on(request, sent, is_write=True)
            await asyncio.sleep(self.delay_s())
            return answer
        finally:
            self.in_flight -= 1

    async def _pass_on(self, request: web.Request, sent: bytes, is_write: bool) -> web.Response:
        headers = {"Content-Type": request.content_type} if sent else {}
        async with self._session.request(
            request.method, self._upstream + request.path_qs, data=sent or None, headers=headers
        ) as answer:
            body = await answer.read()
            if is_write and answer.status == 200:
                document = json.loads(sent) if sent else {}
                self.written.append(Write(time.time(), request.path, dict(request.query), document))
                if self.after is not None:
                    self.after()
            return web.Response(body=body, status=answer.status, content_type=answer.content_type)


@asynccontextmanager
async def forwarding(
    upstream: str, session: aiohttp.ClientSession, is_write: Callable[[web.Request], bool]
) -> AsyncIterator[CountingForwarder]:
    """A forwarder that listens on a free port of loopback while the context lasts; see its `url`."""
    forwarder = CountingForwarder(upstream, session, is_write)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forwarder.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        forwarder.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield forwarder
    finally:
        await runner.cleanup()
