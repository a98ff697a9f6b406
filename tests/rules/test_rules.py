"""The rule files as text: conventions, and that each alert has a test which makes it fire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from analyzers.codes import CODES
from rules.export import FOLDER, INHIBITION_FILE, RULE_FILES, RUNBOOK, export

Json = dict[str, Any]


def load(path: Path) -> Json:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


RULES = [rule for file in RULE_FILES for group in load(FOLDER / file)["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
PROMTOOL_TESTS = [load(path) for path in sorted((FOLDER / "tests").glob("*.yaml"))]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_alert_conventions(alert: Json) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning", "none"}
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert re.fullmatch(r"[A-Z][^{}]*\.", notes["summary"]), "a sentence without variables"
    assert notes["description"].rstrip().endswith(".")
    page, slug = notes["runbook_url"].split("#")
    assert page == RUNBOOK
    assert slug in CODES
    if "absent(" in alert["expr"]:
        assert alert.get("for"), "absent() without a duration fires at the first missed evaluation"


def test_every_alert_is_made_to_fire() -> None:
    fired = {
        (case["alertname"], expected["exp_labels"]["severity"])
        for document in PROMTOOL_TESTS
        for test in document["tests"]
        for case in test.get("alert_rule_test", [])
        for expected in case["exp_alerts"]
    }
    samples = {
        text
        for document in PROMTOOL_TESTS
        for test in document["tests"]
        for case in test.get("promql_expr_test", [])
        for sample in case["exp_samples"]
        for text in [sample["labels"]]
    }
    for alert in ALERTS:
        name, severity = alert["alert"], alert["labels"]["severity"]
        seen = any(f'alertname="{name}"' in text for text in samples)
        assert (name, severity) in fired or seen, f"{name} ({severity}) never fires in rules/tests"


def test_burn_rate_windows_share_one_objective() -> None:
    ratios = [rule for rule in RULES if rule.get("record", "").startswith("slo:sli_error:ratio_rate")]
    assert {rule["labels"]["sloth_window"] for rule in ratios} == {"5m", "30m", "1h", "2h", "6h", "1d", "3d"}
    for rule in ratios:
        assert set(re.findall(r"\[(\w+)\]", rule["expr"])) == {rule["labels"]["sloth_window"]}
    bounds = {bound for rule in ratios for bound in re.findall(r'le="([^"]+)"', rule["expr"])}
    assert len(bounds) == 1


def test_inhibition_names_alerts_that_exist() -> None:
    names = {alert["alert"] for alert in ALERTS}
    for rule in load(FOLDER / INHIBITION_FILE)["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            if matcher.startswith("alertname"):
                (value,) = re.findall(r'"([^"]+)"', matcher)
                assert set(value.split("|")) <= names, matcher


def test_export_plain_keeps_the_files(tmp_path: Path) -> None:
    written = export(tmp_path / "out")
    assert [path.name for path in written] == [*RULE_FILES, INHIBITION_FILE]
    for path in written:
        assert path.read_bytes() == (FOLDER / path.name).read_bytes()


def test_export_prometheus_rules(tmp_path: Path) -> None:
    written = export(tmp_path, as_kubernetes=True, runbook="https://docs.example/findings")
    assert [path.name for path in written] == list(RULE_FILES)
    for path in written:
        document = load(path)
        assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert re.fullmatch(r"[a-z0-9-]+", document["metadata"]["name"])
        text = (FOLDER / path.name).read_text(encoding="utf-8")
        plain = yaml.safe_load(text.replace(RUNBOOK, "https://docs.example/findings"))
        assert document["spec"] == plain


def test_export_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(NotADirectoryError, match="expected a directory"):
        export(tmp_path / "taken")
