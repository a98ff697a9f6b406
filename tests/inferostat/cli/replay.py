"""A loopback server that answers each scrape with the next recorded body, and is gone after the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web


@asynccontextmanager
async def replay(bodies: Sequence[Path], then_gone: bool = False) -> AsyncIterator[str]:
    """The server's URL. With `then_gone` the port is closed once the last body was read."""
    left = list(bodies)
    runner: web.AppRunner
    closing: list[asyncio.Task[None]] = []

    async def metrics(request: web.Request) -> web.Response:
        body = left.pop(0) if len(left) > 1 or then_gone else left[0]
        if not left:
            closing.append(asyncio.create_task(runner.cleanup()))
        return web.Response(body=body.read_bytes(), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await asyncio.gather(*closing)
        await runner.cleanup()
