import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from fleetsim.client_stats import ClientStats
from fleetsim.clients import Clients, control_app
from fleetsim.http import serve
from fleetsim.request import Outcome, Record
from fleetsim.scenario import Scenario
from fleetsim.truth import Truth
from tests.fleetsim.waiting import eventually

SCENARIO = Scenario(name="t", about="t", truth=Truth(what="t"))


@pytest.fixture
async def lengths() -> list[tuple[int, int]]:
    return []


@pytest.fixture
async def gateway(lengths: list[tuple[int, int]]) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        lengths.append((body["prompt_tokens"], body["max_tokens"]))
        return web.json_response({})

    app = web.Application()
    app.add_routes([web.post("/v1/completions", answer)])
    async with serve(app) as address:
        yield f"http://{address}"


async def test_offers_what_it_is_told_and_logs_every_first_attempt(
    gateway: str, session: aiohttp.ClientSession, lengths: list[tuple[int, int]]
) -> None:
    log = io.StringIO()
    clients = Clients(SCENARIO, session, url=gateway, rate_rps=200.0, seed=1, log=log)
    async with serve(control_app(clients)) as address:
        control = f"http://{address}"

        async def call(method: str, path: str, body: object = None) -> dict[str, object]:
            async with session.request(method, control + path, json=body) as answer:
                assert answer.status == 200
                found: dict[str, object] = await answer.json()
                return found

        started = await call("POST", "/start")
        assert await call("POST", "/start") == started
        await eventually(lambda: len(lengths) >= 100)
        assert await call("PUT", "/load", {"factor": 0}) == {"offered_rps": 0}
        await eventually(lambda: clients.stats()["in_flight"] == 0)
        sent = len(lengths)
        assert await call("PUT", "/load", {"factor": 1.5, "prompt_scale": 10}) == {"offered_rps": 300}
        await eventually(lambda: len(lengths) >= sent + 20)
        assert min(p for p, _ in lengths[sent:]) >= 3000
        stats = await call("GET", "/stats")
        assert stats["amplification"] == 1.0
        async with session.put(f"{control}/load", json={"factor": -1}) as answer:
            assert answer.status == 400
        await call("POST", "/stop")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) >= len(lengths)
    assert {line["outcome"] for line in lines} <= {"ok", "unfinished"}


async def test_same_seed_same_arrivals_and_lengths(
    gateway: str, session: aiohttp.ClientSession, lengths: list[tuple[int, int]]
) -> None:
    runs = []
    for seed in (1, 1, 2):
        lengths.clear()
        log = io.StringIO()
        clients = Clients(SCENARIO, session, url=gateway, rate_rps=300.0, seed=seed, log=log)
        clients.start()
        await eventually(lambda: len(lengths) >= 20)
        await clients.stop()
        runs.append(sorted(lengths[:15]))
    assert runs[0] == runs[1] != runs[2]


def test_stats_forget_what_is_older_than_the_window() -> None:
    now = 0.0
    stats = ClientStats(lambda: now)
    for taken in (0, 0, 1):
        stats.attempt(taken)
    stats.finished(Record(0.0, 1.0, Outcome.OK))
    now = 4.0
    assert stats.summary()["attempts_rps"] == 0.75
    assert stats.summary()["amplification"] == 1.5
    now = 20.0
    summary = stats.summary()
    assert (summary["attempts_rps"], summary["amplification"]) == (0.0, None)
    assert summary["totals"] == {"attempts": 3, "first_attempts": 2, "ok": 1}
