import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleetsim.admin import AdminApi
from fleetsim.eds import EndpointFile
from fleetsim.events import Fault
from fleetsim.gateway import Gateway
from fleetsim.http import serve
from fleetsim.pool import Pool
from fleetsim.scenario import Scenario
from fleetsim.truth import Truth
from tests.fleetsim.waiting import eventually

SCENARIO = Scenario(name="t", about="t", truth=Truth(what="t"), engines=2, max_replicas=4, cold_start_s=0.05)


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIO.model_copy(update=getattr(request, "param", {}))


@pytest.fixture
async def pool(tmp_path: Path, scenario: Scenario) -> AsyncIterator[Pool]:
    endpoints = EndpointFile(tmp_path / "eds.json", "llm")
    endpoints.create()
    pool = Pool(scenario, endpoints, tmp_path / "targets.json")
    await pool.start()
    yield pool
    await pool.stop()


@pytest.fixture
async def admin(pool: Pool, tmp_path: Path) -> AsyncIterator[str]:
    api = AdminApi(pool, Gateway(tmp_path), "http://127.0.0.1:1", lambda: 0.001)
    async with serve(api.app()) as address:
        yield f"http://{address}/admin"


def states(pool: Pool) -> dict[str, str]:
    return {r.name: r.state.value for r in pool.replicas}


def endpoints(tmp_path: Path) -> dict[str, str]:
    """Health by address, as the gateway is told."""
    document = json.loads((tmp_path / "eds.json").read_text())
    found = {}
    for item in document["resources"][0]["endpoints"][0]["lb_endpoints"]:
        address = item["endpoint"]["address"]["socket_address"]
        found[f"{address['address']}:{address['port_value']}"] = item["health_status"]
    return found


def listed(tmp_path: Path) -> dict[str, dict[str, str]]:
    groups = json.loads((tmp_path / "targets.json").read_text())
    return {g["labels"]["name"]: g["labels"] for g in groups if g["labels"]["__role__"] == "engine"}


async def call(
    session: aiohttp.ClientSession, method: str, url: str, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    async with session.request(method, url, json=body) as answer:
        return answer.status, await answer.json()


async def busy(session: aiohttp.ClientSession, pool: Pool, name: str) -> "asyncio.Future[Any]":
    """A long request that is now inside an engine."""
    replica = pool.find(name)
    request = session.post(f"http://{replica.address}/v1/completions", json={"prompt": "x", "max_tokens": 60})
    future = asyncio.ensure_future(request)
    await eventually(lambda: replica.server is not None and replica.server.in_flight == 1)
    return future


async def test_scale_up_is_cold_then_serves(pool: Pool, tmp_path: Path) -> None:
    pool.scale(3)
    await eventually(lambda: states(pool)["engine-2"] == "warming")
    assert listed(tmp_path)["engine-2"]["__state__"] == "warming"
    assert len(endpoints(tmp_path)) == 2
    await eventually(lambda: pool.ready == 3)
    assert endpoints(tmp_path)[pool.find("engine-2").address] == "HEALTHY"
    assert listed(tmp_path)["engine-2"] == {
        "__role__": "engine",
        "__state__": "ready",
        "pool": "default",
        "name": "engine-2",
        "gpus": "4",
        "build": "b1",
        "device": "GPU-0002",
    }


async def test_scale_down_finishes_the_work_of_the_newest_first(
    pool: Pool, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    request = await busy(session, pool, "engine-1")
    address = pool.find("engine-1").address
    pool.scale(1)
    await eventually(lambda: states(pool) == {"engine-0": "ready", "engine-1": "draining"})
    assert endpoints(tmp_path)[address] == "DRAINING"
    async with await request as answer:
        assert answer.status == 200
        assert (await answer.json())["usage"]["completion_tokens"] == 60
    await eventually(lambda: states(pool)["engine-1"] == "stopped")
    assert address not in endpoints(tmp_path)
    assert set(listed(tmp_path)) == {"engine-0"}


async def test_scale_up_during_a_scale_down_starts_a_new_replica(pool: Pool, session: aiohttp.ClientSession) -> None:
    request = await busy(session, pool, "engine-1")
    pool.scale(1)
    pool.scale(2)
    await eventually(lambda: states(pool).get("engine-2") == "ready")
    (await request).close()
    await eventually(lambda: states(pool)["engine-1"] == "stopped")
    assert pool.ready == 2


@pytest.mark.parametrize("scenario", [{"unschedulable": True}], indirect=True)
async def test_unschedulable_replica_stays_pending_and_goes_without_a_trace(pool: Pool, tmp_path: Path) -> None:
    pool.scale(4)
    assert states(pool)["engine-3"] == "pending"
    pool.scale(2)
    await eventually(lambda: states(pool)["engine-3"] == states(pool)["engine-2"] == "stopped")
    assert pool.ready == 2
    assert len(endpoints(tmp_path)) == 2


async def test_drain_and_undrain(pool: Pool, tmp_path: Path) -> None:
    address = pool.find("r0").address
    pool.drain("r0", True)
    assert states(pool)["engine-0"] == "draining"
    assert endpoints(tmp_path)[address] == "DRAINING"
    pool.drain("r0", False)
    assert states(pool)["engine-0"] == "ready"
    assert endpoints(tmp_path)[address] == "HEALTHY"


async def test_crash_refuses_connections_until_recovered_and_warm(
    pool: Pool, admin: str, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    replica = pool.find("engine-0")
    await call(session, "POST", f"{admin}/faults", {"kind": "crash", "targets": ["engine-0"], "xid": 94})
    assert states(pool)["engine-0"] == "crashed"
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.get(f"http://{replica.address}/health")
    assert replica.address in endpoints(tmp_path)  # taking it out is the operator's business
    assert listed(tmp_path)["engine-0"]["__state__"] == "crashed"
    assert replica.reading(1.0).xid == 94
    _, fleet = await call(session, "GET", f"{admin}/fleet")
    assert fleet["faults"] == [{"kind": "crash", "target": "engine-0", "xid": 94}]
    port = replica.port
    await call(session, "POST", f"{admin}/faults", {"kind": "recover", "targets": ["engine-0"]})
    await eventually(lambda: states(pool)["engine-0"] == "ready")
    assert replica.port == port
    async with session.get(f"http://{replica.address}/metrics") as answer:
        assert "vllm:generation_tokens_total" in await answer.text()


async def test_slow_hang_and_recover(pool: Pool, admin: str, session: aiohttp.ClientSession) -> None:
    fault = {"kind": "slow", "targets": ["engine-1"], "g": 1.7}
    assert await call(session, "POST", f"{admin}/faults", fault) == (
        200,
        {"kind": "slow", "targets": ["engine-1"]},
    )
    replica = pool.find("engine-1")
    assert replica.server is not None
    assert replica.server.engine.degradation.g == 1.7
    assert replica.reading(1.0).slowdown == 1.7
    await call(session, "POST", f"{admin}/faults", {"kind": "hang", "targets": ["r1"]})
    assert replica.hung
    assert (replica.reading(1.0).busy, replica.reading(1.0).tensor) == (1.0, 0.0)
    _, fleet = await call(session, "GET", f"{admin}/fleet")
    assert [f["kind"] for f in fleet["faults"]] == ["hang", "slow"]
    await call(session, "POST", f"{admin}/faults", {"kind": "recover"})
    _, fleet = await call(session, "GET", f"{admin}/fleet")
    assert fleet["faults"] == []


async def test_deploy_changes_the_build_after_a_restart(pool: Pool, tmp_path: Path) -> None:
    before = pool.find("engine-1").server
    fault = {"kind": "deploy", "targets": ["engine-1"], "build": "b2", "g_decode": 1.3}
    await pool.inflict(Fault.model_validate(fault))
    await eventually(lambda: listed(tmp_path)["engine-1"]["build"] == "b2" and pool.ready == 2)
    after = pool.find("engine-1").server
    assert after is not None and after is not before
    assert after.engine.degradation.g_decode == 1.3
    assert endpoints(tmp_path)[pool.find("engine-1").address] == "HEALTHY"


async def test_scale_over_http_is_conditional_and_idempotent(
    pool: Pool, admin: str, session: aiohttp.ClientSession
) -> None:
    url = f"{admin}/scale"
    command = {"pool": "default", "replicas": 3, "expected": 2, "request_id": "a"}
    assert await call(session, "PUT", url, command) == (200, {"target": 3, "ready": 2})
    assert await call(session, "PUT", url, command) == (200, {"target": 3, "ready": 2})
    assert pool.target == 3
    assert len(pool.replicas) == 3
    status, answer = await call(session, "PUT", url, {**command, "request_id": "b"})
    assert (status, answer["target"]) == (409, 3)
    assert (await call(session, "PUT", url, {"pool": "default", "replicas": 5}))[0] == 422
    assert (await call(session, "PUT", url, {"pool": "other", "replicas": 2}))[0] == 404
    assert (await call(session, "PUT", url, {"pool": "default", "replicas": "many"}))[0] == 400
    _, log = await call(session, "GET", f"{admin}/log")
    assert [(c["request_id"], c["status"]) for c in log["calls"]] == [
        ("a", 200),
        ("b", 409),
        (None, 422),
        (None, 404),
    ]


async def test_unknown_replicas_and_bad_bodies(admin: str, session: aiohttp.ClientSession) -> None:
    assert (await call(session, "PUT", f"{admin}/replicas/r9/drain", {"drain": True}))[0] == 404
    assert (await call(session, "POST", f"{admin}/faults", {"kind": "hang", "targets": ["engine-9"]}))[0] == 404
    assert (await call(session, "POST", f"{admin}/faults", {"kind": "melt"}))[0] == 400
    for body in (b"{", b"[]", b'{"kind": "hang", "request_id": []}'):
        async with session.post(f"{admin}/faults", data=body) as answer:
            assert answer.status == 400


async def test_fleet_document_and_transitions(pool: Pool, admin: str, session: aiohttp.ClientSession) -> None:
    await call(session, "PUT", f"{admin}/replicas/r1/drain", {"drain": True, "request_id": "d"})
    _, fleet = await call(session, "GET", f"{admin}/fleet")
    assert (fleet["pool"], fleet["target"], fleet["ready"], fleet["max_replicas"]) == ("default", 2, 1, 4)
    replica = fleet["replicas"][1]
    assert (replica["id"], replica["state"], replica["gpus"]) == ("r1", "draining", 4)
    assert replica["price_usd_per_gpu_hour"] == 2.95
    assert replica["url"] == f"http://{replica['address']}"
    _, log = await call(session, "GET", f"{admin}/log")
    story = [(t["from"], t["to"]) for t in log["transitions"] if t["replica"] == "engine-1"]
    assert story == [(None, "pending"), ("pending", "warming"), ("warming", "ready"), ("ready", "draining")]
