"""The envoy backend against the real Envoy: every lever is set, read back, felt by traffic, and reset."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from actuators.envoy import EnvoyBackend
from actuators.model import Lever, LeverKey, Status
from actuators.writing import eventually
from tests.actuators.conftest import POOL, Edge, action, one, options_for

pytestmark = pytest.mark.component
RETRY = {"x-stainless-retry-count": "1"}


async def _both_serve(edge: Edge, backend: EnvoyBackend) -> None:
    keys = tuple(LeverKey(Lever.WEIGHT, POOL, address) for address in edge.addresses)

    async def there() -> bool:
        return all(reading.known and reading.value == 100.0 for reading in await backend.read(keys))

    assert await eventually(there, 10.0)


async def test_breaker_zero_rejects_everything_and_off_restores(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    assert (await one(backend, Lever.BREAKER)).value is None

    outcome = await backend.apply(action(Lever.BREAKER, POOL, None, 0.0), 101.0)
    assert (outcome.status, outcome.readback, outcome.at) == (Status.APPLIED, 0.0, 101.0)
    assert await edge.statuses(5) == [503] * 5

    outcome = await backend.apply(action(Lever.BREAKER, POOL, 0.0, None), 102.0)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, None)
    reading = await one(backend, Lever.BREAKER)
    assert reading.known and reading.value is None
    assert await edge.statuses(5) == [200] * 5


async def test_admission_sheds_its_share_of_all_requests(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    outcome = await backend.apply(action(Lever.ADMISSION, POOL, None, 50.0), 101.0)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, 50.0)
    counts = Counter(await edge.statuses(400))
    # 400 draws at 1/2: 140..260 is six standard deviations to each side
    assert set(counts) == {200, 429} and 140 <= counts[429] <= 260

    outcome = await backend.apply(action(Lever.ADMISSION, POOL, 50.0, 100.0), 102.0)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, None), "admitting everything is off"
    assert (await one(backend, Lever.ADMISSION)).value is None
    assert await edge.statuses(20) == [200] * 20


async def test_retry_budget_sheds_only_retries_and_sets_both_keys(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    outcome = await backend.apply(action(Lever.RETRY_BUDGET, POOL, None, 0.0), 101.0)
    assert outcome.status is Status.APPLIED
    assert await edge.statuses(20, RETRY) == [429] * 20
    assert await edge.statuses(20) == [200] * 20
    async with edge.session.get(f"{edge.gateway.admin_url}/runtime?format=json") as response:
        entries = (await response.json(content_type=None))["entries"]
    assert {key: entry["final_value"] for key, entry in entries.items()} == {
        "inferostat.llm.shed_retries_percent": "100",
        "circuit_breakers.llm.default.retry_budget.budget_percent": "0",
    }

    outcome = await backend.apply(action(Lever.RETRY_BUDGET, POOL, 0.0, None), 102.0)
    assert outcome.status is Status.APPLIED
    assert await edge.statuses(20, RETRY) == [200] * 20
    async with edge.session.get(f"{edge.gateway.admin_url}/runtime?format=json") as response:
        assert (await response.json(content_type=None))["entries"] == {}


async def test_weight_shifts_traffic_and_zero_takes_out(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    first, second = edge.addresses
    outcome = await backend.apply(action(Lever.WEIGHT, first, 100.0, 10.0), 101.0)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, 10.0)
    assert await edge.statuses(220) == [200] * 220
    # the weights promise 1 of 11, 20 requests; 45 is six standard deviations above
    assert 0 < edge.hits[first] < 45, edge.hits

    assert (await backend.apply(action(Lever.WEIGHT, first, 10.0, 0.0, "a2"), 102.0)).status is Status.APPLIED
    edge.hits.clear()
    assert await edge.statuses(40) == [200] * 40
    assert edge.hits == {second: 40}

    refused = await backend.apply(action(Lever.WEIGHT, second, 100.0, 0.0, "a3"), 103.0)
    assert refused.status is Status.FAILED and "the last one stays in" in refused.detail
    assert await edge.statuses(5) == [200] * 5

    assert (await backend.apply(action(Lever.WEIGHT, first, 0.0, 100.0, "a4"), 104.0)).status is Status.APPLIED
    assert (await one(backend, Lever.WEIGHT, first)).value == 100.0
    document = json.loads(edge.gateway.endpoints.path.read_text())
    entries = document["resources"][0]["endpoints"][0]["lb_endpoints"]
    assert [(e["load_balancing_weight"], e["health_status"]) for e in entries] == [(100, "HEALTHY")] * 2


async def test_drain_sends_nothing_more_and_blocks_the_weight(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    first, second = edge.addresses
    assert (await one(backend, Lever.DRAIN, first)).value == 0.0
    assert (await backend.apply(action(Lever.DRAIN, first, 0.0, 1.0), 101.0)).status is Status.APPLIED
    assert await edge.statuses(20) == [200] * 20
    assert edge.hits == {second: 20}

    held = await backend.apply(action(Lever.WEIGHT, first, 100.0, 50.0, "a2"), 102.0)
    assert held.status is Status.CONFLICT and "draining" in held.detail

    assert (await backend.apply(action(Lever.DRAIN, first, 1.0, None, "a3"), 103.0)).status is Status.APPLIED
    edge.hits.clear()
    await edge.statuses(40)
    assert set(edge.hits) == {first, second}


async def test_conflict_when_another_writer_moved(edge: Edge, backend: EnvoyBackend) -> None:
    url = f"{edge.gateway.admin_url}/runtime_modify?circuit_breakers.llm.default.max_requests=77"
    async with edge.session.post(url) as response:
        assert response.status == 200
    outcome = await backend.apply(action(Lever.BREAKER, POOL, None, 10.0), 101.0)
    assert (outcome.status, outcome.readback) == (Status.CONFLICT, 77.0)
    assert (await one(backend, Lever.BREAKER)).value == 77.0


async def test_the_same_action_twice_is_carried_out_once(edge: Edge, backend: EnvoyBackend) -> None:
    again = action(Lever.BREAKER, POOL, None, 10.0)
    first, second = await backend.apply(again, 101.0), await backend.apply(again, 102.0)
    assert first.status is second.status is Status.APPLIED


async def test_restarted_envoy_has_forgotten_and_the_reading_says_so(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    await backend.apply(action(Lever.BREAKER, POOL, None, 40.0), 101.0)
    await backend.apply(action(Lever.WEIGHT, edge.addresses[0], 100.0, 20.0, "a2"), 101.0)

    async def old_enough() -> bool:  # the uptime is in whole seconds: at 0 a restart cannot be told
        reading = await one(backend, Lever.BREAKER)
        async with edge.session.get(f"{edge.gateway.admin_url}/server_info") as response:
            uptime = (await response.json(content_type=None))["uptime_all_epochs"]
        return reading.value == 40.0 and int(uptime.removesuffix("s")) >= 3

    assert await eventually(old_enough, 20.0)
    await one(backend, Lever.BREAKER)

    await edge.gateway.stop()
    gone = await one(backend, Lever.BREAKER)
    assert not gone.known and "expected an answer" in gone.reason
    failed = await backend.apply(action(Lever.WEIGHT, edge.addresses[0], 20.0, 100.0, "a3"), 102.0)
    assert failed.status is Status.FAILED and "check that it runs" in failed.detail

    await edge.gateway.restart()
    forgot = await one(backend, Lever.BREAKER)
    assert forgot.known and forgot.value is None and "restarted" in forgot.reason
    assert (await one(backend, Lever.BREAKER)).reason == ""

    async def weight_kept() -> bool:
        return (await one(backend, Lever.WEIGHT, edge.addresses[0])).value == 20.0

    assert await eventually(weight_kept, 10.0), "the file outlives Envoy, and the failed action left it alone"
    outcome = await backend.apply(action(Lever.BREAKER, POOL, None, 40.0, "a4"), 103.0)
    assert outcome.status is Status.APPLIED


async def test_endpoint_that_left_is_unknown_and_not_written(edge: Edge, backend: EnvoyBackend) -> None:
    await _both_serve(edge, backend)
    assert not (await one(backend, Lever.WEIGHT, "127.0.0.1:1")).known
    outcome = await backend.apply(action(Lever.WEIGHT, "127.0.0.1:1", 100.0, 10.0), 101.0)
    assert outcome.status is Status.FAILED and "gone or not there yet" in outcome.detail


async def test_envoy_that_rejects_the_file_is_ignored_and_the_file_put_back(edge: Edge) -> None:
    backend = EnvoyBackend.from_options("edge", options_for(edge.gateway, readback_s=1.5))
    try:
        await _both_serve(edge, backend)
        path = edge.gateway.endpoints.path
        document = json.loads(path.read_text())
        other = document["resources"][0]["endpoints"][0]["lb_endpoints"][1]
        other["load_balancing_weight"] = 0  # Envoy refuses the whole resource from now on
        path.write_text(json.dumps(document))
        outcome = await backend.apply(action(Lever.WEIGHT, edge.addresses[0], 100.0, 10.0), 101.0)
        assert (outcome.status, outcome.readback) == (Status.IGNORED, 100.0)
        assert json.loads(path.read_text()) == document
    finally:
        await backend.close()
