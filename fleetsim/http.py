"""Serving a small aiohttp application on a loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from fleetsim.server import bind_loopback


@asynccontextmanager
async def serve(app: web.Application) -> AsyncIterator[str]:
    """Serve `app` on a free loopback port while the context lasts; yields `127.0.0.1:PORT`."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        bound = bind_loopback()
        await web.SockSite(runner, bound).start()
        yield f"127.0.0.1:{bound.getsockname()[1]}"
    finally:
        await runner.cleanup()
