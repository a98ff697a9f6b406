"""The command as it is called, on the first seconds of one scenario."""

import json
from pathlib import Path

import pytest

from benchmarks.arena.__main__ import main
from benchmarks.arena.jobs import QUICK, QUICK_DURATION_S, Job
from benchmarks.arena.playing import play_job
from fleetsim.outcomes import AFTER_S
from fleetsim.scenario import library, load_scenario
from fleetsim.score import patience


def test_quick_scenarios_are_in_the_library_and_over_in_time() -> None:
    assert len(QUICK) == len(set(QUICK)) == 8
    assert set(QUICK) <= set(library())
    for scenario in map(load_scenario, QUICK):
        known_until = QUICK_DURATION_S - patience(scenario)
        assert scenario.trigger.end_s + AFTER_S < known_until, f"{scenario.name} has no calls after its trigger"


def test_run_gives_the_same_figures_twice_and_others_by_seed() -> None:
    one, again, other = (play_job(Job("idle-and-back", "none", seed, duration_s=90.0)) for seed in (7, 7, 8))
    assert one.error is None and one.score is not None
    assert (one.score, one.curve) == (again.score, again.curve)
    assert one.score != other.score
    assert one.score.offered > 0
    assert len(one.curve) == 2  # a patience of 31.5 s before the end nobody knows


def test_failing_run_is_told_not_raised() -> None:
    found = play_job(Job("idle-and-back", "nobody", 1))
    assert found.score is None
    assert found.error is not None and "nobody" in found.error


def test_unknown_names_end_with_the_choices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--scenarios", "nothing", "--policies", "nobody", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "steady-state" in told and "hpa-queue" in told


@pytest.mark.parametrize("given", ["--g=0", "--g=nan", "--duration=-1", "--seeds=one"])
def test_numbers_that_make_no_sense_are_refused(given: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([given])
    assert ended.value.code == 2


def test_small_arena_writes_its_reports_and_resumes(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    arguments = ["--scenarios", "idle-and-back", "--policies", "none,hpa-queue,inferostat", "--seeds", "1"]
    arguments += ["--g", "1.25", "--duration", "20", "--jobs", "2"]
    arguments += ["--out", str(tmp_path / "out"), "--report", str(report)]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    jobs = {(line["job"]["policy"], line["job"]["g"]) for line in lines}
    assert jobs == {(policy, g) for policy in ("none", "hpa-queue", "inferostat") for g in (1.0, 1.25)}
    assert "## Where inferostat loses to a peer" in report.read_text()
    assert (tmp_path / "out" / "arena.html").stat().st_size > 1_000_000

    assert main(arguments) == 0  # nothing is played again
    assert len((tmp_path / "out" / "runs.jsonl").read_text().splitlines()) == len(lines)
    assert "6 runs found finished" in report.read_text()
