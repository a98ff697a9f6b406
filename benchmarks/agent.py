"""The agent as a process of its own on a running embedded fleet, for benchmarks that kill it, watch it or weigh it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.children import ChildError, spawn, terminate
from fleetsim.conductor import Embedded
from fleetsim.scenario import Scenario
from inferostat.cli import fleet
from inferostat.embedded import fleet_config

UP_WITHIN_S = 60.0
STOP_GRACE_S = 10.0
POLL_S = 0.02


@dataclass(frozen=True)
class Agent:
    """A running agent: its process, and where its page and metrics are."""

    process: Popen[bytes]
    url: str


def configuration(
    running: Embedded, scenario: Scenario, workdir: Path, levers: frozenset[str] | None = None
) -> dict[str, Any]:
    """The embedded fleet's own configuration, in mode act for `levers` (None: for all)."""
    return fleet_config(fleet.setup(running, scenario, levers=levers), workdir)


class AgentStarter:
    """Starts `inferostat run -c` again and again on one configuration; all of them write to one log."""

    def __init__(self, document: Mapping[str, Any], workdir: Path) -> None:
        self.config = workdir / "inferostat.yaml"
        self.log = workdir / "agent.log"
        self._url_file = workdir / "agent.url"
        self.config.write_text(yaml.safe_dump(dict(document)))

    async def start(self) -> Agent:
        """Returns once the agent answers, which is before it looks at what an earlier one left behind.

        Raises ChildError with the log's end when it does not come up.
        """
        self._url_file.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "inferostat.cli", "run"),
            *("-c", str(self.config), "--url-file", str(self._url_file)),
        ]
        with self.log.open("ab") as log:
            process = spawn(command, log)
        try:
            return Agent(process, await self._address(process))
        except BaseException:
            process.kill()
            process.wait()
            raise

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Agent]:
        """An agent while the context lasts, then an orderly end."""
        agent = await self.start()
        try:
            yield agent
        finally:
            await terminate(agent.process, STOP_GRACE_S)

    async def _address(self, process: Popen[bytes]) -> str:
        loop = asyncio.get_running_loop()
        until = loop.time() + UP_WITHIN_S
        while not (self._url_file.exists() and self._url_file.stat().st_size):
            if process.poll() is not None or loop.time() > until:
                tail = self.log.read_text(errors="replace")[-1000:]
                raise ChildError(f"expected the agent to come up, found: {tail}; see {self.log}")
            await asyncio.sleep(POLL_S)
        return self._url_file.read_text().strip()


Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def metrics(session: aiohttp.ClientSession, agent: Agent) -> Metrics:
    """The agent's own metrics now, by name and labels."""
    async with session.get(f"{agent.url.rstrip('/')}/metrics") as answer:
        answer.raise_for_status()
        text = await answer.text()
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metric(found: Metrics, name: str, /, **labels: str) -> float | None:
    """One value, None where it is absent: an unknown number has no series."""
    return found.get((name, frozenset(labels.items())))
