"""The command line's manners: data on stdout, exit codes, errors that say what to do."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from analyzers.codes import CODES
from inferostat.cli.main import COMMANDS, app
from inferostat.journal import Journal

BODY = Path(__file__).parents[2] / "fixtures" / "live" / "vllm-0.32-busy.prom"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return CliRunner()


def test_every_command_has_help_and_its_first_line_says_what_it_is_for(runner: CliRunner) -> None:
    for name in COMMANDS:
        result = runner.invoke(app, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert len(result.output.splitlines()) > 3


def test_signals_of_a_file_as_json_yaml_and_table(runner: CliRunner) -> None:
    result = runner.invoke(app, ["signals", str(BODY), "-o", "json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    signals = document["targets"][0]["signals"]
    assert signals["requests_running"]["value"] == 4.0
    assert signals["spec_draft_tokens"]["value"] is None
    assert signals["spec_draft_tokens"]["reason"]
    assert set(signals["ttft"]["value"]) == {"count", "sum", "buckets"}
    again = yaml.safe_load(runner.invoke(app, ["signals", str(BODY), "-o", "yaml"]).stdout)
    assert again["targets"][0]["signals"]["requests_running"] == signals["requests_running"]
    assert "requests_running" in runner.invoke(app, ["signals", str(BODY)]).stdout


def test_signals_of_nothing_reachable_is_exit_3_and_of_some_is_4(runner: CliRunner, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.prom")
    assert runner.invoke(app, ["signals", gone]).exit_code == 3
    assert runner.invoke(app, ["signals", gone, str(BODY)]).exit_code == 4


def test_explain_knows_every_finding_by_code_and_by_slug(runner: CliRunner) -> None:
    for slug, code in CODES.items():
        by_slug = runner.invoke(app, ["explain", slug])
        assert by_slug.exit_code == 0, slug
        assert slug in by_slug.stdout
        assert runner.invoke(app, ["explain", code]).stdout == by_slug.stdout
    assert runner.invoke(app, ["explain", "IS9999"]).exit_code == 2


def test_pause_and_resume_show_in_actions(runner: CliRunner, tmp_path: Path) -> None:
    folder = tmp_path / "inferostat"
    folder.mkdir()
    Journal.start(folder / "journal.sqlite", 0.0).close()
    assert runner.invoke(app, ["pause", "--reason", "maintenance"]).exit_code == 0
    paused = runner.invoke(app, ["actions", "-o", "json"])
    assert json.loads(paused.stdout)["paused"] is True
    assert runner.invoke(app, ["resume"]).exit_code == 0
    assert json.loads(runner.invoke(app, ["actions", "-o", "json"]).stdout)["paused"] is False


def test_no_journal_is_one_clear_sentence(runner: CliRunner) -> None:
    result = runner.invoke(app, ["actions"])
    assert result.exit_code == 2
    assert re.search("expected .*, found", result.stderr.replace("\n", " "))


def test_a_configuration_with_mistakes_names_all_of_them(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "inferostat.yaml"
    path.write_text("interval: fast\npools: {a: {targets: [{url: 'ftp://x'}]}}\njournl: x\n")
    result = runner.invoke(app, ["once", "-c", str(path)])
    assert result.exit_code == 2
    for part in ("interval", "pools.a.targets[0].url", "journl"):
        assert part in result.stderr


def test_bundles_are_written(runner: CliRunner, tmp_path: Path) -> None:
    for name in ("dashboards", "rules"):
        for more in ([], ["--as", "kubernetes"]):
            target = tmp_path / f"{name}{len(more)}"
            assert runner.invoke(app, [name, "export", str(target), *more]).exit_code == 0
            assert any(target.iterdir())
    assert runner.invoke(app, ["rules", "export", str(tmp_path), "--as", "helm"]).exit_code == 2


def test_a_damaged_journal_is_not_a_traceback(runner: CliRunner, tmp_path: Path) -> None:
    folder = tmp_path / "inferostat"
    folder.mkdir()
    (folder / "journal.sqlite").write_bytes(b"not a database" * 100)
    result = runner.invoke(app, ["actions"])
    assert result.exit_code == 2
    assert not isinstance(result.exception, sqlite3.Error)
