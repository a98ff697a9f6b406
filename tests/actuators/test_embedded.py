"""The embedded backend against an admin API of the fleet's shape that can refuse, stall and lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from actuators.embedded import EmbeddedBackend
from actuators.model import Lever, LeverKey, LeverReading, Outcome, Status
from tests.actuators.conftest import POOL, action, serve


@dataclass
class FakeFleet:
    """Keeps a target and replica states; a request id is carried out once."""

    url: str = ""
    target: int = 4
    ready: int = 4
    states: dict[str, str] = field(default_factory=lambda: {"engine-0": "ready", "engine-1": "pending"})
    status: int = 200
    obeys: bool = True
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    moved_by_another: int | None = None
    carried_out: list[str] = field(default_factory=list)

    async def fleet(self, request: web.Request) -> web.Response:
        replicas = [
            {"id": f"r{number}", "name": name, "address": f"127.0.0.1:{9000 + number}", "state": state}
            for number, (name, state) in enumerate(self.states.items())
        ]
        document = {"pool": POOL, "target": self.target, "ready": self.ready, "replicas": replicas}
        return web.json_response(document, status=self.status)

    async def scale(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.moved_by_another is not None:
            self.target = self.moved_by_another
        if body["expected"] != self.target:
            return web.json_response({"target": self.target, "ready": self.ready}, status=409)
        if body["replicas"] > 8:
            return web.json_response({"error": "max_replicas is 8"}, status=422)
        if self.obeys:
            self.target = body["replicas"]
            self.carried_out.append(body["request_id"])
        await self.answers.wait()
        return web.json_response({"target": self.target, "ready": self.ready})

    async def drain(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = list(self.states)[int(request.match_info["id"].removeprefix("r"))]
        if self.obeys:
            self.states[name] = "draining" if body["drain"] else "ready"
            self.carried_out.append(body["request_id"])
        return web.json_response({})


@pytest.fixture
async def fleet() -> AsyncIterator[FakeFleet]:
    fake = FakeFleet()
    fake.answers.set()
    app = web.Application()
    app.router.add_get("/admin/fleet", fake.fleet)
    app.router.add_put("/admin/scale", fake.scale)
    app.router.add_put("/admin/replicas/{id}/drain", fake.drain)
    async with AsyncExitStack() as stack:
        fake.url = f"http://127.0.0.1:{await serve(app, stack)}"
        yield fake
        fake.answers.set()


@pytest.fixture
async def backend(fleet: FakeFleet) -> AsyncIterator[EmbeddedBackend]:
    options = {"admin_url": fleet.url, "timeout_s": 1.0, "readback_s": 0.2}
    built = EmbeddedBackend.from_options("fleet", options)
    yield built
    await built.close()


async def _read(backend: EmbeddedBackend, lever: Lever, target: str, pool: str = POOL) -> LeverReading:
    (reading,) = await backend.read((LeverKey(lever, pool, target),))
    return reading


async def _scale(backend: EmbeddedBackend, before: float | None, after: float | None) -> Outcome:
    return await backend.apply(action(Lever.SCALE, POOL, before, after, "s1"), 101.0)


async def test_scale_is_conditional_and_read_back(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    outcome = await _scale(backend, 4.0, 6.0)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, 6.0)
    reading = await _read(backend, Lever.SCALE, POOL)
    assert (reading.value, reading.ready) == (6.0, 4), "two replicas are still to come"
    again = await _scale(backend, 4.0, 6.0)
    assert again.status is Status.APPLIED and fleet.carried_out == ["s1"]


async def test_scale_conflicts_when_another_writer_was_there(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    outcome = await _scale(backend, 3.0, 5.0)
    assert (outcome.status, outcome.readback) == (Status.CONFLICT, 4.0)
    fleet.moved_by_another = 7  # between our look and our write: the fleet's own check finds it
    outcome = await _scale(backend, 4.0, 5.0)
    assert (outcome.status, outcome.readback) == (Status.CONFLICT, 7.0)
    assert fleet.carried_out == []


async def test_lost_answer_is_resolved_by_reading(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    fleet.answers.clear()
    done = await _scale(backend, 4.0, 5.0)
    assert done.status is Status.APPLIED and fleet.carried_out == ["s1"]
    fleet.obeys = False
    lost = await _scale(backend, 5.0, 6.0)
    assert lost.status is Status.FAILED and "within 1 s" in lost.detail


async def test_accepted_and_ignored(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    fleet.obeys = False
    outcome = await _scale(backend, 4.0, 5.0)
    assert (outcome.status, outcome.readback) == (Status.IGNORED, 4.0)


async def test_refusal_and_failure_say_why(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    assert "max_replicas is 8" in (await _scale(backend, 4.0, 9.0)).detail
    assert "number of replicas" in (await _scale(backend, 4.0, None)).detail
    fleet.status = 500
    outcome = await _scale(backend, 4.0, 5.0)
    assert outcome.status is Status.FAILED and "found 500" in outcome.detail
    reading = await _read(backend, Lever.SCALE, POOL)
    assert not reading.known and "500" in reading.reason


@pytest.mark.parametrize("target", ["engine-0", "r0", "127.0.0.1:9000"])
async def test_drain_by_any_name(fleet: FakeFleet, backend: EmbeddedBackend, target: str) -> None:
    assert (await _read(backend, Lever.DRAIN, target)).value == 0.0
    outcome = await backend.apply(action(Lever.DRAIN, target, 0.0, 1.0), 101.0)
    assert outcome.status is Status.APPLIED and fleet.states["engine-0"] == "draining"
    assert (await _read(backend, Lever.DRAIN, target)).value == 1.0
    outcome = await backend.apply(action(Lever.DRAIN, target, 1.0, None, "a2"), 102.0)
    assert outcome.status is Status.APPLIED and fleet.states["engine-0"] == "ready"


async def test_what_is_not_there_is_unknown(fleet: FakeFleet, backend: EmbeddedBackend) -> None:
    fleet.states["engine-1"] = "crashed"
    readings = [
        await _read(backend, Lever.DRAIN, "engine-1"),
        await _read(backend, Lever.DRAIN, "engine-9"),
        await _read(backend, Lever.SCALE, "other", pool="other"),
        await _read(backend, Lever.BREAKER, POOL),
    ]
    assert not any(reading.known for reading in readings)
    assert all("expected" in reading.reason for reading in readings)


async def test_gone_fleet(unused_tcp_port: int) -> None:
    backend = EmbeddedBackend.from_options("fleet", {"admin_url": f"http://127.0.0.1:{unused_tcp_port}"})
    reading = await _read(backend, Lever.SCALE, POOL)
    outcome = await _scale(backend, 4.0, 5.0)
    await backend.close()
    assert not reading.known and outcome.status is Status.FAILED
    assert "check that it runs" in outcome.detail
