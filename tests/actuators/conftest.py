"""A real Envoy with two counting engines behind it, and a fake admin interface that can misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from actuators.envoy import EnvoyBackend
from actuators.model import Action, Lever, LeverKey, LeverReading, LeverValue
from fleetsim.gateway import CLUSTER, Gateway

POOL = "default"
LAYERS = ["base", "admin"]


def action(lever: Lever, target: str, before: LeverValue, after: LeverValue, action_id: str = "a1") -> Action:
    return Action(action_id, 100.0, LeverKey(lever, POOL, target), before, after, "test")


async def one(backend: EnvoyBackend, lever: Lever, target: str = POOL) -> LeverReading:
    (reading,) = await backend.read((LeverKey(lever, POOL, target),))
    return reading


async def serve(app: web.Application, stack: AsyncExitStack) -> int:
    """Run an application on a free loopback port until the stack closes; returns the port."""
    runner = web.AppRunner(app)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


@dataclass
class Edge:
    """The gateway and what its engines saw."""

    gateway: Gateway
    addresses: list[str]
    hits: dict[str, int]
    session: aiohttp.ClientSession

    async def ask(self, headers: dict[str, str] | None = None) -> int:
        """Status of one request through the gateway."""
        async with self.session.get(f"{self.gateway.url}/v1/models", headers=headers) as response:
            await response.read()
            return response.status

    async def statuses(self, count: int, headers: dict[str, str] | None = None) -> list[int]:
        return [await self.ask(headers) for _ in range(count)]


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with AsyncExitStack() as stack:
        hits: dict[str, int] = {}
        gateway = Gateway(tmp_path)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        addresses = []
        for _ in range(2):
            port = await serve(_engine(hits), stack)
            gateway.endpoints.add(port)
            addresses.append(f"127.0.0.1:{port}")
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Edge(gateway, addresses, hits, session)


def _engine(hits: dict[str, int]) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        host = str(request.transport.get_extra_info("sockname")[1]) if request.transport else "?"
        hits[f"127.0.0.1:{host}"] = hits.get(f"127.0.0.1:{host}", 0) + 1
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_get("/v1/models", answer)
    return app


def options_for(gateway: Gateway, **more: object) -> dict[str, object]:
    return {
        "admin_url": gateway.admin_url,
        "eds_path": str(gateway.endpoints.path),
        "clusters": {POOL: CLUSTER},
        **more,
    }


@pytest.fixture
async def backend(edge: Edge) -> AsyncIterator[EnvoyBackend]:
    built = EnvoyBackend.from_options("edge", options_for(edge.gateway))
    yield built
    await built.close()


@dataclass
class FakeAdmin:
    """Envoy's admin interface as far as the backend uses it; accepts writes and ignores them unless told."""

    url: str = ""
    status: int = 200
    body: str | None = None
    obeys: bool = False
    answers_writes: bool = True
    layer: str = "admin"  # that supplies the values
    uptime_s: int = 100
    runtime: dict[str, str] = field(default_factory=dict)
    hosts: list[tuple[str, int]] = field(default_factory=list)
    writes: list[dict[str, str]] = field(default_factory=list)

    async def get_runtime(self, request: web.Request) -> web.Response:
        entries = {
            key: {
                "layer_values": [text if layer == self.layer else "" for layer in LAYERS],
                "final_value": text,
            }
            for key, text in self.runtime.items()
        }
        return self._answer({"layers": LAYERS, "entries": entries})

    async def get_clusters(self, request: web.Request) -> web.Response:
        statuses = [
            {
                "address": {"socket_address": {"address": host, "port_value": port}},
                "health_status": {"eds_health_status": "HEALTHY"},
                "weight": 100,
            }
            for host, port in self.hosts
        ]
        return self._answer({"cluster_statuses": [{"name": CLUSTER, "host_statuses": statuses}]})

    async def get_server_info(self, request: web.Request) -> web.Response:
        return self._answer({"uptime_all_epochs": f"{self.uptime_s}s"})

    async def modify(self, request: web.Request) -> web.Response:
        if self.status == 200:
            self.writes.append(dict(request.query))
            if self.obeys:
                self.runtime |= request.query
                self.runtime = {key: value for key, value in self.runtime.items() if value}
        if not self.answers_writes:
            assert request.transport is not None
            request.transport.close()
        return self._answer({})

    def _answer(self, document: object) -> web.Response:
        if self.body is not None:
            return web.Response(text=self.body, status=self.status)
        return web.json_response(document, status=self.status)


@pytest.fixture
async def fake_admin() -> AsyncIterator[FakeAdmin]:
    admin = FakeAdmin()
    app = web.Application()
    app.router.add_get("/runtime", admin.get_runtime)
    app.router.add_get("/clusters", admin.get_clusters)
    app.router.add_get("/server_info", admin.get_server_info)
    app.router.add_post("/runtime_modify", admin.modify)
    async with AsyncExitStack() as stack:
        admin.url = f"http://127.0.0.1:{await serve(app, stack)}"
        yield admin
