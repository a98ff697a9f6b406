"""Fleet and clients as processes: they come up, serve, report, and leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from fleetsim.children import ChildError, spawn, terminate, wait_for_file
from fleetsim.conductor import Conductor, embedded
from fleetsim.scenario import load_scenario
from tests.fleetsim.waiting import eventually

SMALL = """
name: small
about: two engines, one of them slow for two seconds
truth: {what: none}
engines: 2
max_replicas: 3
load: 0.3
duration_s: 6
trigger: {start_s: 2, end_s: 4}
workload: {prompt_tokens: [50, 100], output_tokens: [10, 20]}
clients: {timeout_s: 1.0, stream: true, retries: 0}
timeline:
  - {at_s: 2, kind: slow, targets: [engine-1], g: 1.5}
  - {at_s: 3, kind: load, factor: 1.5}
  - {at_s: 4, kind: recover}
"""


def running_with(text: str) -> list[int]:
    """Processes whose command line contains `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text in command:
                found.append(int(entry.name))
    return found


@pytest.mark.component
async def test_a_short_story_from_start_to_end(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    scenario, workdir = load_scenario(str(path)), tmp_path / "run"
    async with embedded(str(path), workdir, seed=3) as running:
        assert running.clients["offered_rps"] == pytest.approx(0.3 * running.fleet["capacity_rps"])
        conductor = Conductor(scenario, running, session)
        events = [event async for event in conductor.play(6.0)]
        figures = await conductor.outcomes(6.0)
        async with session.get(f"{running.clients['control_url']}/stats") as answer:
            stats = await answer.json()
        async with session.get(f"{running.fleet['exporter_url']}/metrics") as answer:
            assert 'DCGM_FI_PROF_DRAM_ACTIVE{Hostname="engine-1"' in await answer.text()
        roles = [g["labels"]["__role__"] for g in json.loads((workdir / "targets.json").read_text())]
        assert roles == ["engine", "engine", "gpu", "gateway"]
    assert [(e["kind"], round(e["t"])) for e in events] == [("slow", 2), ("load", 3), ("recover", 4)]
    assert figures.goodput_ratio_before_trigger == 1.0
    assert figures.first_attempts == stats["totals"]["first_attempts"] > 50
    assert figures.success_per_dollar is not None
    assert figures.cost_usd == pytest.approx(2 * 4 * 2.95 * 6 / 3600, rel=0.01)
    lines = [json.loads(line) for line in (workdir / "clients.jsonl").read_text().splitlines()]
    assert len(lines) == figures.first_attempts
    assert running_with(str(workdir)) == []


def start_parent_of_a_fleet(workdir: Path) -> tuple[subprocess.Popen[bytes], Path]:
    script = (
        "import sys, time; from pathlib import Path; from fleetsim.children import spawn\n"
        "spawn([sys.executable, '-m', 'fleetsim.fleet', '--workdir', sys.argv[1]], sys.stderr.buffer)\n"
        "time.sleep(60)"
    )
    log = workdir / "parent.log"
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, "-c", script, str(workdir)], stderr=output), log


@pytest.mark.component
async def test_the_fleet_dies_with_its_parent_however_that_dies(tmp_path: Path) -> None:
    parent, log = start_parent_of_a_fleet(tmp_path)
    try:
        await wait_for_file(tmp_path / "fleet.json", parent, log, 20.0)
        assert len(running_with(str(tmp_path))) == 3  # parent, fleet, Envoy
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    await eventually(lambda: running_with(str(tmp_path)) == [], deadline_s=10.0)


async def test_child_that_fails_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = spawn(
            [sys.executable, "-m", "fleetsim.fleet", "--workdir", str(tmp_path), "--scenario", "nope"],
            output,
        )
    with pytest.raises(ChildError, match=r"found process exit 2.*expected a scenario, found 'nope'"):
        await wait_for_file(tmp_path / "fleet.json", child, log, 20.0)
    await terminate(child, 1.0)


async def test_child_that_never_reports_is_given_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = spawn([sys.executable, "-c", "import time; time.sleep(60)"], output)
    with pytest.raises(ChildError, match=r"within 0.1 s, found nothing"):
        await wait_for_file(tmp_path / "fleet.json", child, log, 0.1)
    await terminate(child, 5.0)
    assert child.returncode == -signal.SIGTERM
