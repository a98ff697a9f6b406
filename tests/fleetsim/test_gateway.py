"""The real Envoy with this project's bootstrap, in front of one small engine."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleetsim.gateway import CLUSTER, Gateway
from fleetsim.sdk import RETRY_COUNT_HEADER
from fleetsim.server import EngineServer, ServingOptions
from tests.fleetsim.conftest import StartServer
from tests.fleetsim.waiting import eventually

pytestmark = pytest.mark.component
BODY = {"prompt": "x", "max_tokens": 2}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(tmp_path)
    await gateway.start()
    yield gateway
    await gateway.stop()


@pytest.fixture
async def server(gateway: Gateway, start_server: StartServer, session: aiohttp.ClientSession) -> EngineServer:
    server = await start_server(ServingOptions())
    gateway.endpoints.add(server.port)

    await eventual_answer(session, gateway, 200)
    return server


async def send(session: aiohttp.ClientSession, gateway: Gateway, retry: int = 0) -> tuple[int, dict[str, str]]:
    headers = {RETRY_COUNT_HEADER: str(retry)}
    async with session.post(f"{gateway.url}/v1/completions", json=BODY, headers=headers) as answer:
        await answer.read()
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}


async def eventual_answer(
    session: aiohttp.ClientSession, gateway: Gateway, status: int, retry: int = 0
) -> dict[str, str]:
    """The headers of the first answer with this status."""
    found: dict[str, str] = {}

    async def answered() -> bool:
        answer, headers = await send(session, gateway, retry)
        found.clear()
        found.update(headers)
        return answer == status

    await eventually(answered)
    return found


async def modify(session: aiohttp.ClientSession, gateway: Gateway, **keys: object) -> None:
    query = {k.replace("__", "."): str(v) for k, v in keys.items()}
    async with session.post(f"{gateway.admin_url}/runtime_modify", params=query) as answer:
        assert answer.status == 200


async def runtime(session: aiohttp.ClientSession, gateway: Gateway) -> dict[str, Any]:
    async with session.get(f"{gateway.admin_url}/runtime?format=json") as answer:
        found: dict[str, Any] = json.loads(await answer.text())["entries"]
        return found


async def stat(session: aiohttp.ClientSession, gateway: Gateway, line: str) -> float:
    async with session.get(f"{gateway.admin_url}/stats/prometheus") as answer:
        for text in (await answer.text()).splitlines():
            if text.startswith(line + " "):
                return float(text.rsplit(" ", 1)[1])
    return 0.0


async def test_levers_shed_what_they_should(
    gateway: Gateway, server: EngineServer, session: aiohttp.ClientSession
) -> None:
    # An override reaches the worker thread a moment after the admin call has returned.
    await modify(session, gateway, inferostat__llm__shed_retries_percent=100)
    headers = await eventual_answer(session, gateway, 429, retry=1)
    assert (headers["retry-after"], headers["x-should-retry"]) == ("5", "false")
    assert (await send(session, gateway))[0] == 200
    await modify(session, gateway, inferostat__llm__shed_retries_percent=0, inferostat__llm__shed_percent=100)
    headers = await eventual_answer(session, gateway, 429)
    assert "x-should-retry" not in headers
    await modify(session, gateway, inferostat__llm__shed_percent=0)
    await eventual_answer(session, gateway, 200, retry=1)
    await modify(session, gateway, **{f"circuit_breakers__{CLUSTER}__default__max_requests": 0})
    headers = await eventual_answer(session, gateway, 503)
    assert headers["x-envoy-overloaded"] == "true"


async def test_first_attempts_and_retries_are_counted_apart(
    gateway: Gateway, server: EngineServer, session: aiohttp.ClientSession
) -> None:
    def line(cluster: str) -> str:
        labels = f'envoy_virtual_cluster="{cluster}",envoy_virtual_host="{CLUSTER}"'
        return f"envoy_vhost_vcluster_upstream_rq_total{{{labels}}}"

    first = await stat(session, gateway, line("first"))
    for retry in (0, 1, 2):
        assert (await send(session, gateway, retry))[0] == 200

    async def counted() -> bool:
        found = [await stat(session, gateway, line(c)) for c in ("first", "retry")]
        return found == [first + 1, 2]

    await eventually(counted)
    address = f"127.0.0.1:{server.port}"
    endpoint = f'envoy_cluster_name="{CLUSTER}",envoy_endpoint_address="{address}"'
    assert await stat(session, gateway, f"envoy_cluster_endpoint_rq_total{{{endpoint}}}") >= 3


async def test_endpoint_taken_out_gets_nothing_though_it_is_the_only_one(
    gateway: Gateway, server: EngineServer, session: aiohttp.ClientSession
) -> None:
    gateway.endpoints.set_draining(server.port, True)
    await eventual_answer(session, gateway, 503)
    gateway.endpoints.set_draining(server.port, False)
    await eventual_answer(session, gateway, 200)


async def test_restart_forgets_overrides_and_keeps_ports_and_endpoints(
    gateway: Gateway, server: EngineServer, session: aiohttp.ClientSession
) -> None:
    key = f"inferostat.{CLUSTER}.shed_percent"
    await modify(session, gateway, inferostat__llm__shed_percent=100)
    assert (await runtime(session, gateway))[key]["final_value"] == "100"
    described = gateway.describe()
    await gateway.restart()
    assert gateway.describe() == described
    assert key not in await runtime(session, gateway)
    await eventual_answer(session, gateway, 200)
