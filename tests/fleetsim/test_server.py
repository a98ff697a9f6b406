import asyncio

import aiohttp
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.server import EngineServer, ServingOptions
from tests.fleetsim.conftest import StartServer
from tests.fleetsim.waiting import eventually

MODEL = "llama-3.1-70b"


def url(server: EngineServer, path: str = "") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def sdk(server: EngineServer, **options: float) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url(server, "/v1"), api_key="none", **options)  # type: ignore[arg-type]


async def samples(session: aiohttp.ClientSession, server: EngineServer) -> dict[str, float]:
    """Sum of each sample name over its labels."""
    async with session.get(url(server, "/metrics")) as answer:
        assert answer.status == 200
        body = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_openai_sdk_gets_whole_and_streamed_answers(start_server: StartServer) -> None:
    server = await start_server(ServingOptions(stream_interval=4))
    async with sdk(server) as client:
        whole = await client.completions.create(model=MODEL, prompt="one two three", max_tokens=10)
        assert whole.usage is not None
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 10)
        assert whole.choices[0].finish_reason == "length"
        assert whole.choices[0].text == " token" * 10
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hello there"}],
            max_tokens=10,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert [t.count("token") for t in texts] == [1, 3, 4, 2]  # the first at once, then by fours
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 10
    models = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert models == [None, None, None, "length"]


async def test_metrics_and_health(start_server: StartServer, session: aiohttp.ClientSession) -> None:
    server = await start_server(ServingOptions())
    async with sdk(server) as client:
        await client.completions.create(model=MODEL, prompt="one two three", max_tokens=5)
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="other", prompt="x", max_tokens=5)
        assert [m.id async for m in client.models.list()] == [MODEL]
    async with session.get(url(server, "/health")) as answer:
        assert answer.status == 200
    found = await samples(session, server)
    assert found["vllm:generation_tokens_total"] == 5
    assert found["vllm:request_success_total"] == 1
    assert found["http_requests_total"] == 2
    assert found["vllm:num_requests_running"] == 0


async def give_up(session: aiohttp.ClientSession, server: EngineServer, stream: bool) -> None:
    """A client that leaves while its request is in the engine."""
    body = {"prompt": "x", "max_tokens": 2000, "stream": stream}
    with pytest.raises(asyncio.TimeoutError):
        async with (
            asyncio.timeout(0.1),
            session.post(url(server, "/v1/completions"), json=body) as answer,
        ):
            await answer.read()


@pytest.mark.parametrize("stream", [True, False])
async def test_disconnect_reaches_the_engine_or_not(
    start_server: StartServer, session: aiohttp.ClientSession, stream: bool
) -> None:
    aborting = await start_server(ServingOptions(abort_on_disconnect=True))
    deaf = await start_server(ServingOptions(abort_on_disconnect=False))
    await asyncio.gather(give_up(session, aborting, stream), give_up(session, deaf, stream))
    await eventually(lambda: aborting.in_flight == 0)
    assert aborting.engine.free_blocks == aborting.engine.profile.num_blocks
    assert deaf.in_flight == 1
    generated = (await samples(session, deaf))["vllm:generation_tokens_total"]

    async def goes_on() -> bool:
        return (await samples(session, deaf))["vllm:generation_tokens_total"] > generated + 3

    await eventually(goes_on)
    assert deaf.in_flight == 1
    found = await samples(session, aborting)
    assert found["vllm:num_requests_running"] == 0
    assert found["vllm:e2e_request_latency_seconds_count"] == 0


@pytest.mark.parametrize("withheld", [True, False])
async def test_headers_wait_for_the_first_token_if_told_to(
    start_server: StartServer, session: aiohttp.ClientSession, withheld: bool
) -> None:
    server = await start_server(ServingOptions(headers_at_first_token=withheld))
    server.driver.set_hung(True)
    body = {"prompt": "x", "max_tokens": 2, "stream": True}
    request = asyncio.ensure_future(session.post(url(server, "/v1/completions"), json=body))
    if withheld:
        await eventually(lambda: server.in_flight == 1)
        assert not request.done()
    else:
        await eventually(request.done)
    server.driver.set_hung(False)
    async with await request as answer:
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


async def test_hung_engine_keeps_its_front_and_freezes_its_gauges(
    start_server: StartServer, session: aiohttp.ClientSession
) -> None:
    server = await start_server(ServingOptions())
    body = {"prompt": "x", "max_tokens": 60}
    first = asyncio.ensure_future(session.post(url(server, "/v1/completions"), json=body))
    await eventually(lambda: len(server.engine.running) == 1)

    async def counted() -> bool:
        return (await samples(session, server))["vllm:num_requests_running"] == 1

    await eventually(counted)
    server.driver.set_hung(True)
    second = asyncio.ensure_future(session.post(url(server, "/v1/completions"), json=body))
    await eventually(lambda: server.in_flight == 2)
    found = await samples(session, server)
    assert (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (1, 0)
    async with session.get(url(server, "/health")) as answer:
        assert answer.status == 200
    server.driver.set_hung(False)
    for request in (first, second):
        (await request).close()


async def test_death_of_the_engine_breaks_its_connections(
    start_server: StartServer, session: aiohttp.ClientSession
) -> None:
    server = await start_server(ServingOptions(abort_on_disconnect=False))
    body = {"prompt": "x", "max_tokens": 2000}
    request = asyncio.ensure_future(session.post(url(server, "/v1/completions"), json=body))
    await eventually(lambda: server.in_flight == 1)
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await request
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.get(url(server, "/health"))


async def test_a_full_batch_decodes_at_the_models_pace(
    start_server: StartServer, session: aiohttp.ClientSession
) -> None:
    server = await start_server(ServingOptions())
    body = {"prompt": "x", "prompt_tokens": 100, "max_tokens": 40}

    async def one() -> None:
        async with session.post(url(server, "/v1/completions"), json=body) as answer:
            assert answer.status == 200
            await answer.read()

    await asyncio.gather(*(one() for _ in range(8)))
    found = await samples(session, server)
    itl = "vllm:inter_token_latency_seconds"
    assert found[f"{itl}_count"] == 8 * 39
    assert 0.016 < found[f"{itl}_sum"] / found[f"{itl}_count"] < 0.025
