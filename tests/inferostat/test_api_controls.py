"""Control verbs: token, origin, host, method, body, and what reaches the daemon."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from inferostat.api.auth import (
    TokenError,
    bearer_matches,
    host_allowed,
    is_loopback,
    load_or_create_token,
    same_origin,
)
from inferostat.api.controls import FaultOrder, LoadOrder
from inferostat.api.server import ApiSettings, StatusServer, build_app
from tests.inferostat.api_fakes import TOKEN, FakeControls, board_after, services
from tests.inferostat.incident import START

Client = TestClient[Request, Application]
VERBS = ("/api/v1/pause", "/api/v1/resume", "/-/reload", "/api/v1/fleet/faults", "/api/v1/fleet/load")
AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def served() -> AsyncIterator[tuple[Client, FakeControls]]:
    made, controls = services(board_after(3), START)
    async with TestClient(TestServer(build_app(made))) as client:
        yield client, controls


@pytest.mark.parametrize("path", VERBS)
async def test_only_post_and_only_with_the_token(served: tuple[Client, FakeControls], path: str) -> None:
    client, controls = served
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        response = await client.request(method, path, headers=AUTH)
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": "Basic x"},
    ):
        assert (await client.post(path, json={"recover": True, "factor": 1}, headers=headers)).status == 401
    assert controls.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_foreign_page_is_refused_even_with_the_token(
    served: tuple[Client, FakeControls], headers: dict[str, str]
) -> None:
    client, controls = served
    response = await client.post("/api/v1/pause", headers={**AUTH, **headers})
    assert response.status == 403
    assert controls.asked == []


async def test_a_foreign_host_name_gets_nothing_on_loopback(served: tuple[Client, FakeControls]) -> None:
    client, _ = served
    response = await client.get("/", headers={"Host": "rebound.example"})
    assert response.status == 421
    assert TOKEN not in await response.text()


async def test_pause_and_resume_reach_the_daemon_and_show(served: tuple[Client, FakeControls]) -> None:
    client, controls = served
    origin = f"http://{client.host}:{client.port}"
    paused = await client.post("/api/v1/pause", json={"reason": "drill"}, headers={**AUTH, "Origin": origin})
    assert paused.status == 200
    status = await (await client.get("/api/v1/status")).json()
    assert status["paused"] == {"at": START, "reason": "drill"}
    assert (await client.post("/api/v1/resume", headers=AUTH)).status == 200
    status = await (await client.get("/api/v1/status")).json()
    assert status["paused"] is None
    assert [event["title"] for event in status["events"][:2]] == ["acting resumed", "acting paused"]
    assert controls.asked == [("pause", "drill"), "resume"]


async def test_a_failed_reload_says_why(served: tuple[Client, FakeControls]) -> None:
    client, controls = served
    controls.reload_error = "pools[0].mode: expected observe, advise or act, found 'auto'; correct it"
    response = await client.post("/-/reload", headers=AUTH)
    assert response.status == 422
    assert (await response.json())["error"] == controls.reload_error
    controls.reload_error = None
    assert (await client.post("/-/reload", headers=AUTH)).status == 200


async def test_fleet_orders_are_passed_on(served: tuple[Client, FakeControls]) -> None:
    client, controls = served
    for path, body in (
        ("faults", {"kind": "slow", "targets": "all", "g": 1.7, "duration_s": 45}),
        ("faults", {"kind": "crash", "targets": ["engine-1"]}),
        ("faults", {"recover": True}),
        ("load", {"factor": 2, "duration_s": 45}),
    ):
        assert (await client.post(f"/api/v1/fleet/{path}", json=body, headers=AUTH)).status == 200
    assert controls.asked == [
        FaultOrder("slow", (), 1.7, 45.0),
        FaultOrder("crash", ("engine-1",)),
        FaultOrder("recover"),
        LoadOrder(2.0, 45.0),
    ]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("faults", "{", "expected a JSON object"),
        ("faults", "[]", "expected a JSON object, found list"),
        ("faults", '{"kind": "explode"}', "expected kind to be one of slow, hang, crash, recover"),
        ("faults", '{"kind": "slow"}', "expected g"),
        ("faults", '{"kind": "slow", "g": -1}', "expected g to be a number above 0"),
        ("faults", '{"kind": "slow", "g": NaN}', "expected g to be a number above 0"),
        ("faults", '{"kind": "slow", "g": true}', "expected g to be a number above 0"),
        ("faults", '{"kind": "hang", "targets": []}', "expected targets"),
        ("faults", '{"kind": "hang", "targets": [1]}', "expected targets"),
        ("load", "{}", "expected factor"),
        ("load", '{"factor": 1e9}', "expected factor to be a number above 0 and at most 100"),
    ],
)
async def test_bad_bodies_are_refused_with_a_sentence(
    served: tuple[Client, FakeControls], path: str, body: str, says: str
) -> None:
    client, controls = served
    response = await client.post(f"/api/v1/fleet/{path}", data=body, headers=AUTH)
    assert response.status == 400
    assert (await response.json())["error"].startswith(says)
    assert controls.asked == []


async def test_oversized_body_is_413(served: tuple[Client, FakeControls]) -> None:
    client, _ = served
    response = await client.post("/api/v1/pause", data=b"x" * 200_000, headers=AUTH)
    assert response.status == 413


async def test_a_real_fleet_has_no_faults_and_its_page_no_token() -> None:
    made, _ = services(board_after(2, embedded=False), START, embedded=False)
    async with TestClient(TestServer(build_app(made))) as client:
        response = await client.post("/api/v1/fleet/faults", json={"recover": True}, headers=AUTH)
        assert response.status == 404
        text = await (await client.get("/")).text()
    assert TOKEN not in text
    assert "Break something" not in text


async def test_bound_elsewhere_the_page_has_no_token() -> None:
    made, _ = services(board_after(2), START, settings=ApiSettings(TOKEN, host="0.0.0.0"))
    async with TestClient(TestServer(build_app(made))) as client:
        text = await (await client.get("/", headers={"Host": "fleet.example"})).text()
    assert TOKEN not in text
    assert "Break something" not in text


async def test_server_binds_loopback_by_default_and_closes() -> None:
    made, _ = services(board_after(2), START)
    server = StatusServer(made)
    url = await server.start()
    assert url.startswith("http://127.0.0.1:")
    taken = StatusServer(
        services(board_after(1), START, settings=ApiSettings(TOKEN, port=int(url.rsplit(":", 1)[1])))[0]
    )
    with pytest.raises(OSError, match="in use"):
        await taken.start()
    await server.close()
    await server.close()


def test_token_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path)
    assert len(token) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_token(path) == token


def test_unsafe_token_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    with pytest.raises(TokenError, match="readable by its owner only, found mode 044"):
        load_or_create_token(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(TokenError, match="expected 16 or more characters"):
        load_or_create_token(path)
    with pytest.raises(TokenError, match="make its folder writable"):
        load_or_create_token(tmp_path / "no" / "token")


def test_checks_of_headers() -> None:
    assert bearer_matches("bearer  abc ", "abc")
    assert not bearer_matches("Bearer äöü", "abc")
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("fleet.example")
    assert host_allowed("[::1]:80", True, frozenset()) and host_allowed("tunnel:80", True, frozenset({"tunnel"}))
    assert not host_allowed("[", True, frozenset()) and not host_allowed(None, True, frozenset())
    assert same_origin({}, "a:1") and same_origin({"Origin": "https://a:1"}, "a:1")
    assert not same_origin({"Origin": ""}, "") and not same_origin({"Origin": "http://a:2"}, "a:1")
