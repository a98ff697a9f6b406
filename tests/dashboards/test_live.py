"""Every panel shows finite data over a live fleet with its agent; a healthy fleet raises no alert."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dashboards.build import FOLDER
from tests.dashboards import live, promql

pytestmark = pytest.mark.component

Json = dict[str, Any]
GRAFANA = {"__rate_interval": f"{live.WINDOW_S}s", "__range": "1m", "ttft_slo": "2.5"}
DEADLINE_S = 150
# capacity is unknown to the agent until most engines were seen at their limit
AT_THE_LIMIT = ("inferostat_pool_capacity_rate", "inferostat_pool_vulnerability")
SURGE = 2.0


def queries(board: Json, values: dict[str, str]) -> dict[str, tuple[str, bool, str]]:
    """Panel id, title and query letter -> expression, instant, unit."""
    found = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            key = f"{panel['id']} {panel['title']} {target['refId']}"
            expr = promql.substitute(target["expr"], values)
            found[key] = (expr, target["instant"], panel["fieldConfig"]["defaults"]["unit"])
    return found


async def variable_values(client: live.Prometheus, board: Json) -> dict[str, str]:
    """What Grafana puts in for "All": `allValue`, or the alternatives that the query and its regex give."""
    values = dict(GRAFANA)
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        listed = await client.label_values(promql.substitute(series, values), label)
        pattern = variable["regex"].strip("/") or ".*"
        listed = [value for value in listed if re.match(pattern, value)]
        if listed:
            values[variable["name"]] = variable["allValue"] or "|".join(listed)
    return values


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.json")))
async def test_every_panel_has_finite_data(name: str, tmp_path: Path) -> None:
    board = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    async with (
        live.embedded_fleet(tmp_path) as fleet,
        live.agent(fleet) as agent,
        live.prometheus(fleet, agent) as client,
    ):
        missing = await _wait_for_data(client, board, but=AT_THE_LIMIT)
        assert not missing, "\n".join(f"{key}: {why}" for key, why in missing.items())
        await _check_rules(client)
        await fleet.load(SURGE)
        missing = await _wait_for_data(client, board)
        assert not missing, "\n".join(f"{key}: {why}" for key, why in missing.items())


async def _wait_for_data(client: live.Prometheus, board: Json, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Queries without good data at the deadline, with the reason; those that read `but` are left out."""
    deadline = time.monotonic() + DEADLINE_S
    missing = {"variables": "not read yet"}
    while missing and time.monotonic() < deadline:
        try:
            asked = queries(board, await variable_values(client, board))
        except ValueError as error:
            missing = {"variables": str(error)}
        else:
            missing = {}
            for key, (expr, instant, unit) in asked.items():
                if promql.metrics(expr) & set(but):
                    continue
                answer = await client.panel(expr, instant)
                if fault := _fault(answer, unit):
                    missing[key] = f"{fault} from {expr}"
        await asyncio.sleep(0.5)
    return missing


def _fault(answer: live.Answer, unit: str) -> str:
    if answer.error:
        return answer.error
    if not answer.finite:
        return f"{answer.series} series with {answer.values}"
    if min(answer.values) < 0 or (unit == "percentunit" and max(answer.values) > 1):
        return f"implausible {answer.values}"
    return ""


async def _check_rules(client: live.Prometheus) -> None:
    groups = (await client.get("rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert firing == {"Watchdog"}
