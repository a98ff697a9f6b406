"""The rules of the common dashboard linter and of Grafana's grid, on the committed JSON."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from dashboards.build import FOLDER
from rules.export import RULE_FILES
from tests.dashboards import inventory, promql

UNITS = {
    "bytes", "celsius", "hertz", "none", "opm", "ops", "percentunit", "reqps", "s", "short", "watt",
}  # fmt: skip
VARIABLES_OF_GRAFANA = {"__rate_interval": "1m", "__range": "1h"}
ENGINE_LABELS = {"job", "model_name", "instance"}

Json = dict[str, Any]
FILES = sorted(FOLDER.glob("*.json"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
BOARDS: dict[str, Json] = {name: json.loads(text) for name, text in TEXTS.items()}


def panels(board: Json) -> list[Json]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: Json) -> list[str]:
    """Every PromQL expression: panels and annotations."""
    targets = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    return targets + [annotation["expr"] for annotation in board["annotations"]["list"]]


PANELS = [
    pytest.param(name, panel, id=f"{name}-{panel['id']}") for name, board in BOARDS.items() for panel in panels(board)
]
EXPRESSIONS = sorted({(name, expr) for name, board in BOARDS.items() for expr in expressions(board)})


def test_there_is_a_dashboard() -> None:
    assert "fleet.json" in BOARDS


@pytest.mark.parametrize("name", BOARDS)
def test_ids_and_uids_are_unique(name: str) -> None:
    ids = [panel["id"] for panel in BOARDS[name]["panels"]]
    assert len(ids) == len(set(ids))
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_stay_on_the_grid_and_do_not_overlap(name: str) -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in BOARDS[name]["panels"]]
    for title, place in places:
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24, title
    for (first, a), (second, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{first} overlaps {second}"


@pytest.mark.parametrize(("name", "panel"), PANELS)
def test_panel_says_what_it_shows(name: str, panel: Json) -> None:
    assert panel["title"] and len(panel["description"]) > 20
    assert panel["targets"], "a panel without a query"
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["fieldConfig"]["defaults"]["noValue"]
    for override in panel["fieldConfig"]["overrides"]:
        units = [item["value"] for item in override["properties"] if item["id"] == "unit"]
        assert set(units) <= UNITS
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("name", "panel"), PANELS)
def test_data_source_is_the_variable(name: str, panel: Json) -> None:
    for source in [panel["datasource"], *(target["datasource"] for target in panel["targets"])]:
        assert source == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("name", BOARDS)
def test_document_loads_in_anyones_grafana(name: str) -> None:
    board = BOARDS[name]
    assert board["schemaVersion"] == 39
    assert board["time"]["from"].startswith("now-")
    assert board["editable"] is False
    assert "__inputs" not in board and "id" not in board
    assert set(re.findall(r'"uid": "([^"]+)"', TEXTS[name])) == {"${datasource}", board["uid"]}
    assert all("current" not in variable for variable in board["templating"]["list"])


@pytest.mark.parametrize("name", BOARDS)
def test_variables(name: str) -> None:
    variables = {variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["label"] == "Data source"
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["refresh"] == 2, variable["name"]
            assert variable["multi"] and variable["includeAll"]
    assert variables["instance"]["allValue"] == ".+"
    used = set(re.findall(r"\$\{?(\w+)", TEXTS[name])) - set(VARIABLES_OF_GRAFANA)
    used -= {expansion for expansion in used if expansion.isdigit()}
    assert used == set(variables), "variables used and variables defined differ"


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_windows_follow_the_scrape_interval(name: str, expr: str) -> None:
    assert set(promql.ranges(expr)) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_every_metric_exists(name: str, expr: str) -> None:
    known = set(inventory.scraped()) | inventory.recorded() | inventory.PROMETHEUS_OWN
    used = promql.metrics(expr)
    assert used, f"no metric found in {expr}"
    assert used <= known


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_counters_are_only_read_through_rates(name: str, expr: str) -> None:
    counters = {metric for metric, kind in inventory.scraped().items() if kind == "counter"}
    counters |= {m for m in inventory.recorded() if m.endswith(("_total", "_bucket", "_sum", "_count"))}
    assert not promql.counted_outside_rate(expr, counters)


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_engine_queries_honour_the_variables(name: str, expr: str) -> None:
    if any(metric.startswith("llm:") and ":gpu_" not in metric for metric in promql.metrics(expr)):
        assert promql.matched_labels(expr) >= ENGINE_LABELS


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_divisions_guard_against_no_traffic(name: str, expr: str) -> None:
    for divisor in re.findall(r"/ (\(?\w+)", expr):
        assert divisor.startswith("("), f"a bare divisor gives NaN where nothing happens: {expr}"
    assert expr.count("> 0)") >= expr.count(" / ")


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_quantiles_drop_nan(name: str, expr: str) -> None:
    if "histogram_quantile(" in expr:
        assert expr.endswith(">= 0")


def test_rule_files_use_known_metrics_only() -> None:
    known = set(inventory.scraped()) | inventory.recorded() | inventory.PROMETHEUS_OWN
    for file in RULE_FILES:
        for rule in inventory.rules(file):
            assert promql.metrics(rule["expr"]) <= known, rule


def test_every_recording_is_used() -> None:
    """A recording that nothing reads is cost without use (Sloth's own names are for Sloth's dashboards)."""
    used = {m for _, expr in EXPRESSIONS for m in promql.metrics(expr)}
    used |= {m for file in RULE_FILES for rule in inventory.rules(file) for m in promql.metrics(rule["expr"])}
    assert {name for name in inventory.recorded() - used if not name.startswith("slo:")} == set()
