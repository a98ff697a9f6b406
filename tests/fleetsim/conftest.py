from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from fleetsim.server import EngineServer, ServingOptions, bind_loopback
from fleetsim.timing import load_profile


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


StartServer = Callable[[ServingOptions], Awaitable[EngineServer]]


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Starts simulated engines on free ports; they end with the test."""
    started: list[EngineServer] = []

    async def start(options: ServingOptions) -> EngineServer:
        server = EngineServer(load_profile(), options)
        started.append(server)
        await server.start(bind_loopback())
        return server

    yield start
    for server in started:
        await server.stop()
