"""An agent that watches an embedded fleet and moves nothing, sampled while a scenario plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.agent import Agent, AgentStarter, configuration, metric, metrics
from fleetsim.conductor import Conductor, Embedded, embedded
from fleetsim.file_sd import POOL
from fleetsim.scenario import Scenario, load_scenario

Json = dict[str, Any]
Also = Callable[[Embedded, aiohttp.ClientSession], Coroutine[Any, Any, None]]
"""What else happens while a scenario plays, beside its own timeline."""


@dataclass(frozen=True)
class Sample:
    """What the agent said at one of its cycles. `at`: unix seconds of the cycle; numbers None while unknown."""

    at: float
    cost_usd_per_hour: float | None
    hbm_compute_ratio: float | None
    findings: Mapping[str, str]


@dataclass(frozen=True)
class Watched:
    """`transitions`: the fleet's own log of its replicas. `played_at`: unix seconds of the clients' start."""

    played_at: float
    samples: tuple[Sample, ...]
    transitions: tuple[Json, ...]


def variant(name: str, workdir: Path, **changes: object) -> Path:
    """A packaged scenario with some of its fields changed, as a file in `workdir`."""
    document = load_scenario(name).model_dump(mode="json") | changes
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


async def watch(
    scenario_name: str, workdir: Path, duration_s: float, interval_s: float = 1.0, also: Also | None = None
) -> Watched:
    """Play a scenario (a packaged name or a file) for so long, with one sample a cycle of the agent."""
    scenario = load_scenario(scenario_name)
    async with embedded(scenario_name, workdir) as running, aiohttp.ClientSession() as session:
        document = configuration(running, scenario, workdir, levers=frozenset())
        document["interval"] = interval_s
        async with AgentStarter(document, workdir).running() as agent:
            return await _play(scenario, running, agent, session, duration_s, interval_s, also)


async def _play(
    scenario: Scenario,
    running: Embedded,
    agent: Agent,
    session: aiohttp.ClientSession,
    duration_s: float,
    interval_s: float,
    also: Also | None,
) -> Watched:
    samples: list[Sample] = []
    conductor = Conductor(scenario, running, session)

    async def look() -> None:
        while True:
            sample = await _sample(session, agent)
            if sample is not None and (not samples or sample.at > samples[-1].at):
                samples.append(sample)
            await asyncio.sleep(interval_s / 4)

    async def timeline() -> None:
        async for _ in conductor.play(duration_s):
            pass

    looking = asyncio.create_task(look())
    beside = asyncio.create_task(also(running, session)) if also is not None else None
    try:
        await timeline()
    finally:
        tasks = [task for task in (looking, beside) if task is not None]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    async with session.get(f"{running.fleet['admin_url']}/admin/log") as answer:
        log: Json = await answer.json()
    assert conductor.started_at is not None
    return Watched(conductor.started_at, tuple(samples), tuple(log["transitions"]))


async def _sample(session: aiohttp.ClientSession, agent: Agent) -> Sample | None:
    """None before the agent's first cycle."""
    found = await metrics(session, agent)
    at = metric(found, "inferostat_last_cycle_timestamp_seconds")
    if at is None:
        return None
    async with session.get(f"{agent.url.rstrip('/')}/api/v1/findings") as answer:
        findings = (await answer.json())["findings"]
    return Sample(
        at,
        metric(found, "inferostat_measure", name="cost_usd_per_hour", scope=f"pool/{POOL}"),
        metric(found, "inferostat_pool_hbm_compute_ratio", pool=POOL),
        {item["slug"]: item["summary"] for item in findings},
    )
