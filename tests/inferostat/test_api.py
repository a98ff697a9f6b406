"""The HTTP API over a board with a made-up incident: probes, documents, and no NaN anywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from inferostat.api.server import build_app
from inferostat.api.state import StatusBoard
from tests.inferostat.api_fakes import TOKEN, board_after, services
from tests.inferostat.incident import FAULT_FROM, POOL, START, Incident

Client = TestClient[Request, Application]
STORM = FAULT_FROM + 30
DOCUMENTS = ("targets", "signals", "findings", "decisions", "actions", "measures", "series", "status")


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


async def document(client: Client, path: str) -> Any:
    response = await client.get(path)
    assert response.status == 200, await response.text()
    assert response.content_type == "application/json"
    return json.loads(await response.text(), parse_constant=refuse)


@pytest.fixture(scope="module")
def stormy_board() -> StatusBoard:
    """Only read by the tests that use it."""
    return board_after(STORM)


@pytest.fixture
async def client(stormy_board: StatusBoard) -> AsyncIterator[Client]:
    made, _ = services(stormy_board, START + STORM)
    async with TestClient(TestServer(build_app(made))) as test_client:
        yield test_client


@pytest.fixture
async def empty_client() -> AsyncIterator[Client]:
    made, _ = services(StatusBoard("1.2.3", "advise"), START)
    async with TestClient(TestServer(build_app(made))) as test_client:
        yield test_client


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_healthy_is_always_200(empty_client: Client, method: str) -> None:
    response = await empty_client.request(method, "/-/healthy")
    assert response.status == 200


async def test_ready_says_what_is_missing_until_nothing_is() -> None:
    board = StatusBoard("1.2.3", "advise")
    made, _ = services(board, START)
    async with TestClient(TestServer(build_app(made))) as client:
        first = await client.get("/-/ready")
        board.configured("advise")
        second = await client.get("/-/ready")
        assert (first.status, second.status) == (503, 503)
        assert "configuration" in await first.text()
        assert "first cycle" in await second.text()
        board.publish(Incident().cycle(0))
        assert (await client.head("/-/ready")).status == 200


async def test_metrics_are_prometheus_text(client: Client) -> None:
    response = await client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain")
    assert 'inferostat_finding_active{scope="pool/default",severity="critical",slug="retry-storm"} 1.0' in (
        await response.text()
    )


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_every_document_is_strict_json_with_a_schema_version(
    client: Client, empty_client: Client, name: str
) -> None:
    for one in (client, empty_client):
        found = await document(one, f"/api/v1/{name}")
        assert found["schema_version"] == 1
        assert found["now"] in (START, START + STORM)


async def test_unknown_is_null_with_a_state_and_a_reason(client: Client) -> None:
    status = await document(client, "/api/v1/status")
    rows = {row["name"]: row for row in status["endpoints"]}
    lost, fresh, well = rows["engine-3"], rows.get("engine-4"), rows["engine-0"]
    assert lost["state"] == "unreachable"
    assert lost["cells"]["running"]["value"] is None
    assert lost["cells"]["running"]["state"] == "unknown(stale)"
    assert lost["cells"]["weight"]["reason"] == "the gateway did not answer"
    assert lost["cells"]["hbm_compute_ratio"]["state"] == "unknown(never_seen)"
    assert fresh is None
    assert well["cells"]["waiting"] == {
        "value": 38.0, "state": "known", "unit": "requests", "reason": "", "age_s": pytest.approx(0.1),
    }  # fmt: skip
    numbers = status["pools"][0]["numbers"]
    assert numbers["time_to_timeout_s"] == {
        "value": None, "state": "unknown(missing)", "unit": "s", "reason": "it was there before and is gone",
    }  # fmt: skip


async def test_headline_findings_and_limits(client: Client) -> None:
    status = await document(client, "/api/v1/status")
    headline = status["headline"]
    assert headline["level"] == "critical"
    assert headline["title"].startswith("Retry storm: ")
    assert "concurrency at most 48 requests" in headline["detail"]
    findings = (await document(client, "/api/v1/findings"))["findings"]
    assert [finding["slug"] for finding in findings] == ["retry-storm", "engine-hung", "vulnerable"]
    assert findings[0]["evidence"][2]["observed"] is None


async def test_actions_carry_outcome_and_expectation_newest_first(client: Client) -> None:
    actions = (await document(client, "/api/v1/actions"))["actions"]
    newest, oldest = actions
    assert (oldest["before"], oldest["after"]) == (None, 64.0)
    assert oldest["outcome"]["status"] == "applied"
    assert oldest["expect"]["measure"] == "queue_wait_s"
    assert newest["at"] > oldest["at"]


async def test_verdict_of_a_later_cycle_is_joined_to_its_action() -> None:
    board = board_after(110)
    by_id = {record.action.id: record for record in board.records}
    verdict = by_id[f"a{FAULT_FROM + 8}"].verdict
    assert verdict is not None and verdict.state == "verified"


async def test_decisions_show_every_step_with_its_reason(client: Client) -> None:
    decisions = await document(client, "/api/v1/decisions")
    steps = decisions["latest"]["considered"][0]["steps"]
    assert [(step["name"], step["value"]) for step in steps] == [("proposed", 41.7), ("limited", 48.0)]
    assert all(step["reason"] for step in steps)


async def test_series_since_gives_only_what_is_new(client: Client) -> None:
    whole = (await document(client, "/api/v1/series"))["series"][POOL]
    part = (await document(client, f"/api/v1/series?since={START + STORM - 3}"))["series"][POOL]
    assert (len(whole["at"]), part["at"]) == (STORM, [START + STORM - 2, START + STORM - 1])
    assert whole["capacity_mu"][0] is None
    assert len(whole["offered_rate"]) == STORM


@pytest.mark.parametrize("since", ["x", "nan", "inf"])
async def test_bad_since_is_refused(client: Client, since: str) -> None:
    response = await client.get(f"/api/v1/status?since={since}")
    assert response.status == 400
    assert "expected since in unix seconds" in (await response.json())["error"]


async def test_targets_tell_error_and_age(client: Client) -> None:
    targets = {t["name"]: t for t in (await document(client, "/api/v1/targets"))["targets"]}
    assert targets["engine-3"]["up"] is False
    assert "expected metrics" in targets["engine-3"]["error"]
    assert targets["engine-0"]["age_s"] == pytest.approx(1.1)


async def test_signals_list_histograms_and_their_state(client: Client) -> None:
    endpoints = (await document(client, "/api/v1/signals"))["endpoints"]
    assert endpoints["engine-3"]["ttft"]["value"] is None
    assert endpoints["engine-0"]["ttft"]["value"]["count"] == STORM * 6


async def test_runbook_is_escaped_and_unknown_slugs_are_404(client: Client) -> None:
    page = await client.get("/runbook/retry-storm")
    assert "&lt;b&gt;breathe" in await page.text()
    assert (await client.get("/runbook/nothing-like-it")).status == 404
    assert (await client.get("/runbook/..%2f..%2fetc")).status == 404


@pytest.mark.parametrize("path", ["/static/nothing.js", "/static/../server.py", "/nowhere"])
async def test_unknown_paths_are_404_as_json(client: Client, path: str) -> None:
    response = await client.get(path)
    assert response.status == 404
    assert "error" in await response.json()


async def test_answers_forbid_framing_foreign_code_and_caching(client: Client) -> None:
    for path in ("/", "/api/v1/status", "/nowhere"):
        headers = (await client.get(path)).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


async def test_page_needs_nothing_from_elsewhere(client: Client) -> None:
    text = await (await client.get("/")).text()
    assert "http://" not in text and "https://" not in text
    assert TOKEN in text


def test_no_file_of_the_page_parses_markup_from_data() -> None:
    static = Path(__file__).parents[2] / "inferostat" / "api" / "static"
    for path in static.glob("*.js"):
        source = path.read_text()
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert forbidden not in source, f"{path.name} uses {forbidden}"
