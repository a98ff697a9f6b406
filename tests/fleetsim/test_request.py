"""Our client and the real SDK against one scripted server: they must do the same."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import openai
import pytest
from aiohttp import web

from fleetsim.http import serve
from fleetsim.request import Outcome, Record, Requester
from fleetsim.sdk import RETRY_COUNT_HEADER
from tests.fleetsim.waiting import eventually

STREAM = b'data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":[]}\n\n'
WHOLE = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": []}
TIMEOUT_S = 0.25


@dataclass
class Script:
    """Answers each request with the next step: a status with headers, `ok`, `stall`, `cut` or `drop`."""

    url: str = ""
    steps: list[str | tuple[int, dict[str, str]]] = field(default_factory=list)
    retry_counts: list[str] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.retry_counts.append(request.headers[RETRY_COUNT_HEADER])
        self.connections.add(request.transport)
        stream = (await request.json()).get("stream", False)
        step = self.steps.pop(0)
        if isinstance(step, tuple):
            return web.json_response({"error": {"message": "no"}}, status=step[0], headers=step[1])
        if step == "stall":
            await asyncio.sleep(60)
        if step == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if not stream:
            return web.json_response(WHOLE)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if step == "late":
            await asyncio.sleep(60)
        await response.write(STREAM)
        if step == "cut":
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    app = web.Application()
    app.add_routes([web.post("/v1/completions", script.answer)])
    async with serve(app) as address:
        script.url = f"http://{address}"
        yield script


async def ours(script: Script, stream: bool) -> Record:
    async with aiohttp.ClientSession() as session:
        requester = Requester(
            session,
            script.url,
            timeout_s=TIMEOUT_S,
            stream=stream,
            retries=2,
            rng=random.Random(1),
            clock=time.monotonic,
        )
        return await requester.run(10, 5)


async def theirs(script: Script, stream: bool) -> bool:
    """Whether the real SDK got its answer."""
    client = openai.AsyncOpenAI(base_url=f"{script.url}/v1", api_key="none", timeout=TIMEOUT_S, max_retries=2)
    async with client:
        try:
            if stream:
                async for _ in await client.completions.create(model="m", prompt="x", stream=True):
                    pass
            else:
                await client.completions.create(model="m", prompt="x")
        except Exception:  # its own errors, and mid-stream those of whichever HTTP library it came with
            return False
    return True


SOON = {"retry-after-ms": "5"}
CASES: list[tuple[list[str | tuple[int, dict[str, str]]], bool, int, Outcome]] = [
    (["ok"], True, 1, Outcome.OK),
    (["ok"], False, 1, Outcome.OK),
    ([(503, SOON), (429, SOON), "ok"], True, 3, Outcome.OK),
    ([(503, SOON), (503, SOON), (503, SOON)], False, 3, Outcome.REJECTED),
    ([(429, {"retry-after": "5", "x-should-retry": "false"})], False, 1, Outcome.REJECTED),
    ([(400, {})], False, 1, Outcome.REJECTED),
    (["stall", "ok"], True, 2, Outcome.OK),
    (["stall", "ok"], False, 2, Outcome.OK),
    (["drop", "ok"], False, 2, Outcome.OK),
    (["late"], True, 1, Outcome.TIMEOUT),  # its headers were there: the SDK does not retry
    (["cut"], True, 1, Outcome.ERROR),
]


@pytest.mark.parametrize(("steps", "stream", "attempts", "outcome"), CASES)
async def test_does_as_the_sdk_does(
    script: Script,
    steps: list[str | tuple[int, dict[str, str]]],
    stream: bool,
    attempts: int,
    outcome: Outcome,
) -> None:
    script.steps = [*steps, *steps]
    record = await ours(script, stream)
    our_counts = script.retry_counts[:]
    script.steps = list(steps)
    answered = await theirs(script, stream)
    assert record.outcome is outcome
    assert record.attempts == attempts == len(record.statuses)
    assert our_counts == [str(i) for i in range(attempts)]
    assert script.retry_counts[attempts:] == our_counts
    assert answered is (outcome is Outcome.OK)


async def test_record_of_an_answered_request(script: Script) -> None:
    script.steps = [(503, SOON), "ok"]
    record = await ours(script, stream=True)
    assert record.statuses == [503, 200]
    assert record.tokens == 5
    assert record.ttft_s is not None
    assert 0 < record.ttft_s < record.t_end - record.t_start < 1


async def test_connection_close_is_honoured_and_keep_alive_used(script: Script) -> None:
    script.steps = ["ok", (503, {**SOON, "connection": "close"}), "ok", "ok"]
    async with aiohttp.ClientSession() as session:
        requester = Requester(
            session,
            script.url,
            timeout_s=1.0,
            stream=False,
            retries=2,
            rng=random.Random(1),
            clock=time.monotonic,
        )
        outcomes = [(await requester.run(10, 5)).outcome for _ in range(3)]
    assert outcomes == [Outcome.OK] * 3
    assert len(script.connections) == 2


async def test_cancelled_request_is_unfinished(script: Script) -> None:
    script.steps = ["stall"]
    task = asyncio.ensure_future(ours(script, stream=False))
    await eventually(lambda: len(script.retry_counts) == 1)
    task.cancel()
    record = await task
    assert (record.outcome, record.attempts, record.statuses) == (Outcome.UNFINISHED, 1, [])
