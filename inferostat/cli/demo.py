"""`inferostat demo`: one incident on the embedded fleet, through the real gateway, with or without the agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
import yaml
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from actuators.model import Lever
from fleetsim.children import ChildError, spawn, terminate
from fleetsim.conductor import Conductor, Embedded, embedded
from fleetsim.outcomes import Outcomes
from fleetsim.scenario import Scenario, ScenarioError, load_wall_clock
from inferostat.cli import fleet
from inferostat.cli.output import Format, Output, emit, fail, table, told
from inferostat.cli.timeline import Entry, Watcher, action_entries
from inferostat.embedded import fleet_config
from inferostat.journal import JournalReader

AGENT_UP_S = 60.0
AGENT_GRACE_S = 10.0


@dataclass(frozen=True)
class Play:
    """What was asked for. `act_after_s`: seconds from the fault's end from which the agent may act."""

    name: str
    scenario: Scenario
    seed: int
    load: float
    duration_s: float
    fault: bool
    act: bool
    act_after_s: float | None
    levers: frozenset[str] | None


def demo(
    scenario: Annotated[str, typer.Option(help="A packaged scenario or a file.")] = "retry-storm",
    seed: Annotated[int | None, typer.Option()] = None,
    load: Annotated[float | None, typer.Option(help="Offered load as a share of measured capacity.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds, instead of the scenario's.")] = None,
    no_act: Annotated[bool, typer.Option("--no-act", help="The agent watches and says, and moves nothing.")] = False,
    act_after_fault: Annotated[
        float | None, typer.Option(help="Let the agent act only from SECONDS after the fault's end.")
    ] = None,
    no_fault: Annotated[bool, typer.Option("--no-fault", help="Leave out what goes wrong.")] = False,
    levers: Annotated[str | None, typer.Option(help="Only these may act, comma-separated.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Keep logs and journal here.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Fleet, real Envoy, clients and agent as separate processes; one incident; what came of it."""
    try:
        loaded = load_wall_clock(scenario)
        play = Play(
            scenario,
            loaded,
            loaded.seed if seed is None else seed,
            loaded.load if load is None else load,
            loaded.duration_s if duration is None else duration,
            not no_fault,
            not no_act,
            act_after_fault,
            _levers(levers),
        )
        document = fleet.run(_in_folder(play, workdir))
    except (ScenarioError, ChildError, aiohttp.ClientError, TimeoutError) as error:
        raise fail(str(error) or repr(error)) from error
    shown = table(f"{play.name}, seed {play.seed}, load {play.load:g}", "what", "value")
    for key, value in document.items():
        if not isinstance(value, list):
            shown.add_row(key, f"{value:.3f}" if isinstance(value, float) else str(value))
    events = table("Timeline", "t", "kind", "lever", "target", "state", "reason")
    for entry in document["timeline"]:
        events.add_row(
            f"{entry['t']:.1f}",
            *(str(entry[name] or "") for name in ("kind", "lever", "target", "state", "reason")),
        )
    emit(document, output, [shown, events])


def _levers(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = names - {lever.value for lever in Lever}
    if unknown:
        known = ", ".join(lever.value for lever in Lever)
        raise fail(f"--levers: expected some of {known}; found {', '.join(sorted(unknown))}")
    return names


async def _in_folder(play: Play, workdir: Path | None) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="inferostat-demo-")) if workdir is None else workdir
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return await _play(play, folder)
    finally:
        if workdir is None:
            shutil.rmtree(folder, ignore_errors=True)


async def _play(play: Play, workdir: Path) -> dict[str, Any]:
    async with (
        embedded(play.name, workdir, play.seed, play.load) as running,
        _agent(play, running, workdir) as agent_url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session,
    ):
        conductor = Conductor(play.scenario, running, session)
        watcher = Watcher(session, agent_url, (workdir / "token").read_text().strip())
        entries = await _conduct(play, conductor, watcher)
        outcomes = await conductor.outcomes(play.duration_s)
        limits = await watcher.limits()
        lag = await watcher.fleet_lag(running.fleet["admin_url"])
    assert conductor.started_at is not None
    reader = JournalReader.open(workdir / "journal.sqlite")
    try:
        entries += action_entries(reader.actions(10_000), conductor.started_at)
    finally:
        reader.close()
    return _document(play, running, outcomes, entries, limits, lag)


@asynccontextmanager
async def _agent(play: Play, running: Embedded, workdir: Path) -> AsyncIterator[str]:
    """The agent as a process of its own; yields its address once it is ready."""
    config = fleet_config(fleet.setup(running, play.scenario, levers=play.levers), workdir)
    path, url_file = workdir / "inferostat.yaml", workdir / "agent.url"
    path.write_text(yaml.safe_dump(config))
    url_file.unlink(missing_ok=True)
    with (workdir / "agent.log").open("ab") as log:
        command = [
            sys.executable,
            "-m",
            "inferostat.cli",
            "run",
            "-c",
            str(path),
            "--url-file",
            str(url_file),
        ]
        child = spawn(command, log)
    try:
        yield await _address(child, url_file, workdir / "agent.log")
    finally:
        await terminate(child, AGENT_GRACE_S)


async def _address(child: subprocess.Popen[bytes], url_file: Path, log: Path) -> str:
    loop = asyncio.get_running_loop()
    until = loop.time() + AGENT_UP_S
    while not url_file.exists() or not url_file.stat().st_size:
        if child.poll() is not None or loop.time() > until:
            raise ChildError(f"expected the agent to come up, found: {log.read_text()[-1000:]}")
        await asyncio.sleep(0.05)
    return url_file.read_text().strip()


async def _conduct(play: Play, conductor: Conductor, watcher: Watcher) -> list[Entry]:
    """Play the timeline, watch the findings, and let the agent act from when it may."""
    acts_from = 0.0 if play.act_after_s is None else play.scenario.trigger.end_s + play.act_after_s
    if not play.act or acts_from > 0:
        await watcher.pause("demo: not yet" if play.act else "demo: --no-act")
    entries: list[Entry] = []
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=told, transient=True)
    with bar:
        task = bar.add_task("warm-up", total=play.duration_s)

        async def advance() -> None:
            allowed = play.act and acts_from == 0
            while conductor.started_at is None:
                await asyncio.sleep(0.05)
            while True:
                t = await watcher.look(conductor.started_at)
                if play.act and not allowed and t >= acts_from:
                    await watcher.resume()
                    allowed = True
                bar.update(task, completed=min(t, play.duration_s), description=watcher.headline or "steady")
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(advance())
        try:
            async for event in conductor.play(play.duration_s, with_faults=play.fault):
                reason = " ".join(f"{k}={v}" for k, v in event.items() if k not in ("t", "kind"))
                entries.append(
                    Entry(event["t"], "fault", None, str(event.get("targets", "clients")), event["kind"], reason)
                )
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if watching.done() and not watching.cancelled() and watching.exception() is not None:
            raise ChildError(f"expected the agent to answer to the end, found {watching.exception()!r}")
    return entries + watcher.entries


def _document(
    play: Play,
    running: Embedded,
    outcomes: Outcomes,
    entries: list[Entry],
    limits: dict[str, float],
    lag: float | None,
) -> dict[str, Any]:
    if lag is not None and lag > 0.05:
        told.print(
            f"this machine is too slow for honest times: event-loop lag p99 {lag * 1000:.0f} ms",
            style="yellow",
        )
    return {
        "scenario": play.name,
        "seed": play.seed,
        "load": play.load,
        "capacity_rps": running.fleet["capacity_rps"],
        "goodput_ratio_before_trigger": outcomes.goodput_ratio_before_trigger,
        "goodput_ratio_during_fault": outcomes.goodput_ratio_during_fault,
        "goodput_ratio_after_trigger": outcomes.goodput_ratio_after_trigger,
        "recovery_s": outcomes.recovery_s,
        "success_per_dollar": outcomes.success_per_dollar,
        "cost_usd": outcomes.cost_usd,
        "limits_at_end": limits,
        "loop_lag_p99_s": lag,
        "cpus": os.cpu_count(),
        "timeline": [entry.document() for entry in sorted(entries, key=lambda entry: entry.t)],
    }
