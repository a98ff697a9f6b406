"""Plays a scenario: starts fleet and clients as processes, then applies the timeline over their HTTP APIs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from fleetsim.children import ChildError, spawn, terminate, wait_for_file
from fleetsim.events import EngineEvent
from fleetsim.outcomes import Outcomes, outcomes
from fleetsim.scenario import Scenario
from fleetsim.sdk import patience_s

START_DEADLINE_S = 30.0
STOP_GRACE_S = 8.0


@dataclass(frozen=True, slots=True)
class Embedded:
    """A running fleet and its clients: what `fleet.json` and `clients.json` say."""

    workdir: Path
    fleet: Mapping[str, Any]
    clients: Mapping[str, Any]


@asynccontextmanager
async def embedded(
    scenario: str, workdir: Path, seed: int | None = None, load: float | None = None
) -> AsyncIterator[Embedded]:
    """Fleet and clients in processes of their own while the context lasts; the clients wait to be started.

    `scenario` is a packaged name or a file. ChildError, with the log's end, if a process does not come up.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    client_options = [
        *(["--seed", str(seed)] if seed is not None else []),
        *(["--load", str(load)] if load is not None else []),
    ]
    async with AsyncExitStack() as stack:
        fleet = await _process(stack, "fleet", scenario, workdir, [])
        clients = await _process(stack, "clients", scenario, workdir, client_options)
        yield Embedded(workdir, fleet, clients)


async def _process(
    stack: AsyncExitStack, name: str, scenario: str, workdir: Path, options: list[str]
) -> dict[str, Any]:
    described, log_path = workdir / f"{name}.json", workdir / f"{name}.log"
    described.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", f"fleetsim.{name}", "--workdir", str(workdir)),
        *("--scenario", scenario, *options),
    ]
    with log_path.open("wb") as log:
        child = spawn(command, log)
    stack.push_async_callback(terminate, child, STOP_GRACE_S)
    document: dict[str, Any] = json.loads(await wait_for_file(described, child, log_path, START_DEADLINE_S))
    return document


class Conductor:
    """Starts the clients and applies the scenario's timeline from that moment on."""

    def __init__(self, scenario: Scenario, running: Embedded, session: aiohttp.ClientSession) -> None:
        self.started_at: float | None = None
        self._scenario = scenario
        self._running = running
        self._session = session

    async def play(self, duration_s: float, with_faults: bool = True) -> AsyncIterator[dict[str, Any]]:
        """Yield each event of the timeline once it is applied; ends after `duration_s`, clients stopped."""
        control_url = self._running.clients["control_url"]
        loop = asyncio.get_running_loop()
        self.started_at = (await self._call("POST", f"{control_url}/start", {}))["started_at"]
        start = loop.time()
        timeline = sorted(self._scenario.timeline, key=lambda e: e.at_s) if with_faults else []
        for event in timeline:
            if event.at_s >= duration_s:
                break
            await asyncio.sleep(start + event.at_s - loop.time())
            body = event.model_dump(exclude={"at_s"}, exclude_none=True)
            if isinstance(event, EngineEvent):
                await self._call("POST", f"{self._running.fleet['admin_url']}/admin/faults", body)
            else:
                await self._call("PUT", f"{control_url}/load", body)
            yield {"t": loop.time() - start, **body}
        await asyncio.sleep(start + duration_s - loop.time())
        await self._call("POST", f"{control_url}/stop", {})

    async def outcomes(self, duration_s: float) -> Outcomes:
        """The figures of the run that was played."""
        if self.started_at is None:
            raise ChildError("expected a run that was played, found none: play the scenario first")
        log = await self._call("GET", f"{self._running.fleet['admin_url']}/admin/log", None)
        text = await asyncio.to_thread(Path(self._running.clients["log_path"]).read_text)
        trigger, clients = self._scenario.trigger, self._scenario.clients
        return outcomes(
            [json.loads(line) for line in text.splitlines()],
            log["transitions"],
            started_at=self.started_at,
            trigger=(trigger.start_s, trigger.end_s),
            duration_s=duration_s,
            patience_s=patience_s(clients.timeout_s, clients.retries),
        )

    async def _call(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async with self._session.request(method, url, json=body) as answer:
            document: dict[str, Any] = await answer.json()
            if answer.status != 200:
                raise ChildError(f"expected 200 of {method} {url}, found {answer.status}: {document.get('error')}")
            return document
