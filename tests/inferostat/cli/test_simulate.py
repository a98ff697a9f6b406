"""`inferostat simulate`: what it prints, that it prints it again, and what it says to wrong input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from fleetsim.policies.registry import POLICIES
from fleetsim.scenario import names
from inferostat.cli.main import app

SMALL = {
    "name": "small",
    "about": "two engines",
    "truth": {"what": "a surge"},
    "engines": 2,
    "max_replicas": 4,
    "cold_start_s": 10.0,
    "duration_s": 45.0,
    "trigger": {"start_s": 10.0, "end_s": 20.0},
    "timeline": [{"at_s": 10.0, "kind": "load", "factor": 2.5}, {"at_s": 20.0, "kind": "load", "factor": 1.0}],
}
DESIGNED = (
    "scenario", "policy", "seed", "offered", "slo_met", "slo_attainment", "cost_usd", "success_per_dollar",
    "goodput_ratio_before_trigger", "goodput_ratio_during_fault", "goodput_ratio_after_trigger", "recovery_s",
    "ttft_p95_s", "itl_p95_s", "gpu_hours", "actions", "reversals", "wrong_actions", "timeline", "schema_version",
)  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return str(path)


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = simulate(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_list_names_every_scenario_and_policy_with_what_it_is() -> None:
    listed = document("--list")
    assert [item["name"] for item in listed["scenarios"]] == names()
    assert [item["name"] for item in listed["policies"]] == ["inferostat", *POLICIES]
    assert all(item["about"] for item in listed["scenarios"])
    assert all(item["title"] and item["citation"] for item in listed["policies"])
    assert "spike-x3" in simulate("--list").stdout


def test_a_run_of_the_agent_has_every_field_of_the_design(small: str) -> None:
    found = document("--scenario", small, "--seed", "7", "--duration", "25s")
    assert set(DESIGNED) <= set(found)
    assert (found["scenario"], found["policy"], found["seed"]) == ("small", "inferostat", 7)
    assert 0 < found["slo_met"] <= found["offered"]
    assert found["cost_usd"] > 0
    assert found["timeline"]
    assert set(found["timeline"][0]) == {"t", "kind", "lever", "target", "state", "reason"}
    assert [entry["t"] for entry in found["timeline"]] == sorted(entry["t"] for entry in found["timeline"])


def test_a_peers_run_has_the_same_fields_and_other_figures(small: str) -> None:
    ours, theirs = (
        document("--scenario", small, "--duration", "15s", "--policy", policy) for policy in ("inferostat", "none")
    )
    assert set(ours) == set(theirs)
    assert theirs["policy"] == "none"
    assert theirs["actions"] == 0
    assert ours["offered"] == theirs["offered"]


def test_the_same_seed_gives_the_same_bytes_in_other_processes(small: str) -> None:
    """Processes differ in how they hash text, and so in the order of their sets."""
    command = [
        sys.executable,
        "-m",
        "inferostat.cli",
        "simulate",
        "--scenario",
        small,
        "--duration",
        "25s",
        "-o",
        "json",
    ]

    def start(hashes: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)

    one, two = (process.communicate()[0] for process in [start("1"), start("2")])
    assert one == two
    assert json.loads(one)["actions"] > 0


def test_another_seed_is_another_run(small: str) -> None:
    one, two = (document("--scenario", small, "--policy", "none", "--seed", seed) for seed in ("7", "8"))
    assert {key for key in one if one[key] != two[key]} >= {"seed", "offered", "ttft_p95_s"}


def test_options_change_the_run_and_a_table_shows_it(small: str) -> None:
    found = document("--scenario", small, "--policy", "none", "--load", "0.3", "--duration", "20s", "--g", "1.5")
    assert (found["load"], found["duration_s"], found["g"]) == (0.3, 20.0, 1.5)
    shown = simulate("--scenario", small, "--policy", "none", "--duration", "20")
    assert shown.exit_code == 0
    assert "success_per_dollar" in shown.stdout


def test_a_trace_takes_the_place_of_the_traffic(small: str, tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    rows = "".join(f"{0.5 * n},300,100\n" for n in range(60))
    trace.write_text("t_s,prompt_tokens,output_tokens\n" + rows)
    found = document("--scenario", small, "--policy", "none", "--trace", str(trace), "--duration", "20")
    assert found["offered"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scenario", "no-such"), ("spike-x3", "steady")),
        (("--scenario", "steady", "--policy", "no-such"), ("inferostat", "hpa-queue")),
        (("--scenario", "steady", "--policy", "oracle"), ("benchmarks.arena",)),
        ((), ("--scenario", "spike-x3")),
        (("--scenario", "steady", "--load", "0"), ("--load", "above 0")),
        (("--scenario", "steady", "--g", "nan"), ("--g", "above 0")),
        (("--scenario", "steady", "--duration", "soon"), ("--duration", "such as 500ms")),
    ],
)
def test_wrong_input_is_exit_2_and_one_sentence(arguments: tuple[str, ...], said: tuple[str, ...]) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert all(part in result.stderr for part in ("expected", "found", *said))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("t_s,prompt_tokens,output_tokens\n1,300,100\n2,-5,100\n", ":3: column 2 (prompt_tokens)"),
        ("when,what\n1,2\n", ":1: column"),
        ("", ":1"),
    ],
)
def test_a_fault_in_a_trace_is_told_with_its_place(small: str, tmp_path: Path, text: str, place: str) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text(text)
    result = simulate("--scenario", small, "--policy", "none", "--trace", str(trace))
    assert result.exit_code == 2
    assert f"{trace.name}{place}" in result.stderr
