"""The envoy backend against an admin interface that is gone, fails, lies, or loses answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from actuators.envoy import EnvoyBackend
from actuators.model import ActuatorError, Lever, LeverKey, Status
from tests.actuators.conftest import POOL, FakeAdmin, action, one

KEY = "circuit_breakers.llm.default.max_requests"


@pytest.fixture
def eds_path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "eds.json"
    entry = {"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}}
    resource = {"cluster_name": "llm", "endpoints": [{"lb_endpoints": [entry]}]}
    path.write_text(json.dumps({"resources": [resource]}))
    yield path


def _backend(url: str, **more: object) -> EnvoyBackend:
    options = {"admin_url": url, "clusters": {POOL: "llm"}, "timeout_s": 5.0, "readback_s": 0.2, **more}
    return EnvoyBackend.from_options("edge", options)


async def test_accepts_and_ignores(fake_admin: FakeAdmin) -> None:
    backend = _backend(fake_admin.url)
    outcome = await backend.apply(action(Lever.BREAKER, POOL, None, 10.0), 101.0)
    await backend.close()
    assert (outcome.status, outcome.readback) == (Status.IGNORED, None)
    assert "expected to read back 10, found off" in outcome.detail
    assert fake_admin.writes == [{KEY: "10"}]


async def test_lost_answer_is_resolved_by_reading(fake_admin: FakeAdmin) -> None:
    fake_admin.answers_writes = False
    backend = _backend(fake_admin.url)
    lost = await backend.apply(action(Lever.BREAKER, POOL, None, 10.0), 101.0)
    fake_admin.obeys = True
    done = await backend.apply(action(Lever.BREAKER, POOL, None, 10.0), 102.0)
    await backend.close()
    assert lost.status is Status.FAILED
    assert done.status is Status.APPLIED
    assert len(fake_admin.writes) == 2, "a lost answer is never followed by a hidden repeat"


@pytest.mark.parametrize(("status", "body"), [(500, None), (503, "no"), (200, "<html>"), (200, "{}")])
async def test_failing_admin_writes_nothing(
    fake_admin: FakeAdmin, eds_path: Path, status: int, body: str | None
) -> None:
    fake_admin.status, fake_admin.body = status, body
    backend = _backend(fake_admin.url, eds_path=str(eds_path))
    before = eds_path.read_bytes()
    limit = await backend.apply(action(Lever.BREAKER, POOL, None, 10.0), 101.0)
    weight = await backend.apply(action(Lever.WEIGHT, "10.0.0.1:80", 100.0, 10.0), 101.0)
    readings = await backend.read((LeverKey(Lever.BREAKER, POOL, POOL), LeverKey(Lever.WEIGHT, POOL, "10.0.0.1:80")))
    await backend.close()
    assert limit.status is weight.status is Status.FAILED
    assert "expected" in limit.detail and "found" in limit.detail
    assert not any(reading.known for reading in readings) and all(reading.reason for reading in readings)
    assert fake_admin.writes == [] and eds_path.read_bytes() == before


async def test_gone_admin_says_what_to_do(unused_tcp_port: int) -> None:
    backend = _backend(f"http://127.0.0.1:{unused_tcp_port}")
    outcome = await backend.apply(action(Lever.ADMISSION, POOL, None, 10.0), 101.0)
    await backend.close()
    assert outcome.status is Status.FAILED and "check that it runs" in outcome.detail


async def test_half_set_retry_budget_is_completed(fake_admin: FakeAdmin) -> None:
    fake_admin.obeys = True
    fake_admin.runtime = {"inferostat.llm.shed_retries_percent": "90"}
    backend = _backend(fake_admin.url)
    outcome = await backend.apply(action(Lever.RETRY_BUDGET, POOL, None, 10.0), 101.0)
    await backend.close()
    assert outcome.status is Status.APPLIED
    assert fake_admin.writes == [
        {
            "inferostat.llm.shed_retries_percent": "90",
            "circuit_breakers.llm.default.retry_budget.budget_percent": "10",
        }
    ]


async def test_value_of_another_layer_has_an_owner(fake_admin: FakeAdmin) -> None:
    fake_admin.runtime, fake_admin.layer = {KEY: "5"}, "base"
    backend = _backend(fake_admin.url)
    reading = await one(backend, Lever.BREAKER)
    await backend.close()
    assert (reading.known, reading.value, reading.owner) == (True, 5.0, "runtime layer base")


async def test_text_in_the_key_is_unknown(fake_admin: FakeAdmin) -> None:
    fake_admin.runtime = {KEY: "many"}
    backend = _backend(fake_admin.url)
    reading = await one(backend, Lever.BREAKER)
    await backend.close()
    assert not reading.known and "'many'" in reading.reason


async def test_restart_is_seen_once(fake_admin: FakeAdmin) -> None:
    backend = _backend(fake_admin.url)
    reasons = []
    for uptime in (100, 100, 3, 3):
        fake_admin.uptime_s = uptime
        reasons.append((await one(backend, Lever.BREAKER)).reason)
    await backend.close()
    assert [bool(reason) for reason in reasons] == [False, False, True, False]


@pytest.mark.parametrize("content", ["", "[]", '{"resources": 3}', '{"resources": [{}]}', "not json"])
async def test_unreadable_file_is_left_alone(fake_admin: FakeAdmin, eds_path: Path, content: str) -> None:
    fake_admin.hosts = [("10.0.0.1", 80), ("10.0.0.2", 80)]
    eds_path.write_text(content)
    backend = _backend(fake_admin.url, eds_path=str(eds_path))
    outcome = await backend.apply(action(Lever.WEIGHT, "10.0.0.1:80", 100.0, 10.0), 101.0)
    await backend.close()
    assert outcome.status is Status.FAILED and str(eds_path) in outcome.detail
    assert eds_path.read_text() == content


async def test_unknown_pool_and_lever_spoil_no_other_reading(fake_admin: FakeAdmin) -> None:
    backend = _backend(fake_admin.url)
    readings = await backend.read(
        (
            LeverKey(Lever.BREAKER, "other", "other"),
            LeverKey(Lever.WEIGHT, POOL, "10.0.0.1:80"),
            LeverKey(Lever.BREAKER, POOL, POOL),
        )
    )
    outcome = await backend.apply(action(Lever.SCALE, POOL, 1.0, 2.0), 101.0)
    await backend.close()
    assert [reading.known for reading in readings] == [False, False, True]
    assert outcome.status is Status.FAILED and "found scale" in outcome.detail


@pytest.mark.parametrize("value", [-1.0, 100.5, float("nan"), float("inf")])
async def test_value_out_of_range_is_never_sent(fake_admin: FakeAdmin, value: float) -> None:
    backend = _backend(fake_admin.url)
    outcome = await backend.apply(action(Lever.ADMISSION, POOL, None, value), 101.0)
    await backend.close()
    assert outcome.status is Status.FAILED and "clamp" in outcome.detail
    assert fake_admin.writes == []


def test_wrong_options_are_all_named() -> None:
    with pytest.raises(ActuatorError) as caught:
        EnvoyBackend.from_options("edge", {"admin_url": "localhost:1", "timeout_s": -1, "typo": 1})
    for part in ("edge", "admin_url", "timeout_s", "clusters", "typo"):
        assert part in str(caught.value)
