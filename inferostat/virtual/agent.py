"""The agent beside a fleet in virtual time: the loop as the daemon runs it, called every interval of virtual time.

Nothing in it knows that the fleet is simulated: it reads rendered metrics, and moves levers by reading, comparing,
writing and reading back. What it is told of the fleet is what an operator would put into inferostat.yaml.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from pathlib import Path
from typing import Any

from collector.sources.scrape import ScrapeSettings, ScrapeSource
from fleetsim.file_sd import POOL
from fleetsim.scenario import Scenario
from fleetsim.virtual.garbage import collected_seldom
from fleetsim.virtual.result import Run
from fleetsim.virtual.world import ORIGIN, World
from inferostat import VERSION
from inferostat.assembly import loop_settings
from inferostat.config import Config
from inferostat.journal import Journal
from inferostat.loop import CycleReport, Loop
from inferostat.tracing import CycleTracer
from inferostat.virtual.backend import VirtualBackend
from inferostat.virtual.sensing import VirtualFetcher, VirtualTargets
from inferostat.virtual.story import Story

POLICY = "inferostat"
INTERVAL_S = 2.0  # the shipped example has 5, the embedded fleet 1; a run takes half as long as with 1
RETENTION_S = 300.0  # as the embedded fleet's configuration has it
_BACKEND = "virtual"


class AgentFailed(RuntimeError):
    """A cycle failed by a bug of ours: the run says nothing about the policy."""


def agent_config(scenario: Scenario, journal: Path, interval_s: float = INTERVAL_S) -> Config:
    """What the agent is told of the fleet, in mode act.

    Of nested retries it knows the clients' own only, as an operator would. A new replica may take twice its usual
    cold start.
    """
    ready_within = max(2.0 * scenario.cold_start_s, interval_s)
    levers: dict[str, dict[str, Any]] = {lever.value: {"backend": _BACKEND} for lever in sorted(VirtualBackend.levers)}
    levers["scale"] |= {
        "minimum": scenario.min_replicas,
        "maximum": scenario.max_replicas,
        "verify_within": ready_within,
    }
    pool = {
        "clients": {
            "timeout": scenario.clients.timeout_s,
            "timeout_on": "first_token" if scenario.clients.stream else "answer",
            "retries": scenario.clients.retries,
        },
        "slo": {"ttft": scenario.slo.ttft_s, "tpot": scenario.slo.tpot_s},
        "price_usd_per_gpu_hour": scenario.hardware.price_usd_per_gpu_hour,
        "max_num_seqs": scenario.hardware.profile.max_num_seqs,
        "scaling": {"ready_within": ready_within},
        "levers": levers,
    }
    return Config.model_validate(
        {
            "interval": interval_s,
            "retention": RETENTION_S,
            "mode": "act",
            "pools": {POOL: pool},
            "backends": {_BACKEND: {"kind": _BACKEND}},
            "journal": journal,
        }
    )


class VirtualAgent:
    """Source, backend, journal and loop for one world. `reports` of cycles are told to `story`."""

    def __init__(self, world: World, journal: Path, interval_s: float = INTERVAL_S) -> None:
        config = agent_config(world.scenario, journal, interval_s)
        simulation = world.simulation
        self._simulation = simulation
        self._targets = VirtualTargets(world.telemetry)
        source = ScrapeSource(
            self._targets,
            ScrapeSettings(interval_s=config.interval, freshness_s=config.freshness_s, jitter=0.0),
            clock=lambda: ORIGIN + simulation.now,
            fetcher=VirtualFetcher(world.telemetry, simulation),
        )
        backend = VirtualBackend(_BACKEND, world.controls, self._targets.engines, POLICY)
        self._journal = Journal.start(config.journal, ORIGIN)
        self._tracer = CycleTracer(VERSION)
        settings = loop_settings(config)
        self.loop = Loop(source, {_BACKEND: backend}, self._journal, settings, self._tracer, config.retention)
        self.story = Story()

    async def start(self) -> None:
        """As the daemon does at its start: settle what an earlier run left."""
        await self.loop.recover(ORIGIN + self._simulation.now)

    async def cycle(self) -> CycleReport:
        """One cycle at the time it is in the world. AgentFailed if it fails inside."""
        t = self._simulation.now
        report = await self.loop.run_cycle(ORIGIN + t)
        if report.error is not None:
            raise AgentFailed(f"at {t:g} s: {report.sentence}")
        self.story.take(t, report, self._targets.engines())
        return report

    async def close(self) -> None:
        await self.loop.source.close()
        self._tracer.close()
        self._journal.close()


def play(
    scenario: Scenario,
    *,
    seed: int | None = None,
    load: float | None = None,
    duration_s: float | None = None,
    g: float = 1.0,
) -> Run:
    """A whole run of a scenario with the agent at the levers."""
    return play_agent(World(scenario, seed=seed, load=load, duration_s=duration_s, g=g))


def play_agent(world: World, interval_s: float = INTERVAL_S) -> Run:
    """Run a world that has not begun to its end, with a cycle of the agent every `interval_s`."""
    with collected_seldom():
        return asyncio.run(_play(world, interval_s))


async def _play(world: World, interval_s: float) -> Run:
    with tempfile.TemporaryDirectory(prefix="inferostat-virtual-") as folder:
        agent = VirtualAgent(world, Path(folder) / "journal.sqlite", interval_s)
        try:
            await agent.start()
            for number in range(1, math.ceil(world.duration_s / interval_s)):
                world.run_until(number * interval_s)
                await agent.cycle()
        finally:
            await agent.close()
    world.run_until(world.duration_s)
    return world.finish(POLICY, tuple(agent.story.entries))
