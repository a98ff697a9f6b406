"""A small fleet to spoil: three scripted engines behind the real Envoy, and agents that may act on it.

The agent is the real loop, assembled from a configuration in mode act, driven in virtual time: a cycle a
second, as fast as HTTP allows. Envoy, its admin interface and its EDS file are real.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.bad_input.engine import START, Engine
from benchmarks.bad_input.proxy import AdminProxy
from fleetsim.gateway import CLUSTER, Gateway
from inferostat.assembly import Parts, assemble
from inferostat.config import parse
from inferostat.loop import CycleReport

POOL = "default"
DEADLINE_S = 0.5
LARGEST_BODY_BYTES = 512 * 1024
REQUESTS_A_CYCLE = 3


@dataclass
class Clock:
    """Time that only the laboratory moves."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Lab:
    """Envoy and engines of one run; agents come and go."""

    folder: Path
    session: aiohttp.ClientSession
    gateway: Gateway
    proxy: AdminProxy
    engines: list[Engine]
    clock: Clock = field(default_factory=Clock)
    _agents: int = 0

    def document(self, **changes: Any) -> dict[str, Any]:
        """The configuration of an agent that may move every lever of the real Envoy."""
        self._agents += 1
        targets: list[dict[str, Any]] = [
            {
                "url": f"http://{engine.metrics.address}",
                "address": engine.serves.address,
                "name": engine.name,
            }
            for engine in self.engines
        ]
        gateway = {"url": self.proxy.url, "role": "gateway", "name": "envoy", "cluster": CLUSTER}
        levers = {
            name: {"backend": "edge", "cooldown": "5s"} for name in ("weight", "breaker", "admission", "retry_budget")
        }
        edge = {
            "kind": "envoy",
            "admin_url": self.proxy.url,
            "eds_path": str(self.gateway.endpoints.path),
            "clusters": {POOL: CLUSTER},
            "timeout_s": 1.0,
        }
        document = {
            "interval": "1s",
            "mode": "act",
            "pools": {POOL: {"targets": [*targets, gateway], "clients": {"timeout": "10s"}, "levers": levers}},
            "backends": {"edge": edge},
            "scrape": {"deadline": DEADLINE_S, "jitter": 0.0, "max_bytes": LARGEST_BODY_BYTES},
            "journal": str(self.folder / f"journal-{self._agents}.sqlite"),
        }
        return {**document, **changes}

    @asynccontextmanager
    async def agent(self, document: dict[str, Any] | None = None) -> AsyncIterator[Agent]:
        config = parse(yaml.safe_dump(document or self.document()), "laboratory")
        parts = assemble(config, clock=self.clock)
        try:
            await parts.loop.recover(self.clock())
            yield Agent(self, parts)
        finally:
            await parts.close()

    async def levers(self) -> dict[str, Any]:
        """Everything that could have been moved, read from Envoy and its file without the agent."""
        async with self.session.get(f"{self.gateway.admin_url}/runtime?format=json") as response:
            runtime = json.loads(await response.text())["entries"]
        endpoints = json.loads(self.gateway.endpoints.path.read_text())["resources"][0]["endpoints"]
        return {"runtime": {key: entry["final_value"] for key, entry in runtime.items()}, "eds": endpoints}

    async def reset(self) -> None:
        """Envoy as it was at the start: every endpoint at full weight, no limit."""
        for engine in self.engines:
            self.gateway.endpoints.remove(engine.serves.port)
            self.gateway.endpoints.add(engine.serves.port)
        changes = "&".join(f"{key}=" for key in (await self.levers())["runtime"])
        if changes:
            await self.session.post(f"{self.gateway.admin_url}/runtime_modify?{changes}")
        await self.endpoints_known()

    async def endpoints_known(self) -> None:
        """Wait until Envoy has what its file says; it takes up to a second to notice."""
        until = asyncio.get_running_loop().time() + 10.0
        while asyncio.get_running_loop().time() < until:
            async with self.session.get(f"{self.gateway.admin_url}/clusters") as response:
                text = await response.text()
            healthy = [f"{engine.serves.address}::health_flags::healthy" for engine in self.engines]
            full = [f"{engine.serves.address}::weight::100" for engine in self.engines]
            if all(line in text for line in (*healthy, *full)):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("expected Envoy to take up its endpoints within 10 s, found it did not; see its log")

    async def gateway_up_for(self, seconds: int) -> None:
        """Wait until Envoy says so; it counts in whole seconds, and a restart shows as a step back."""
        async with asyncio.timeout(10.0 + seconds):
            while True:
                async with self.session.get(f"{self.gateway.admin_url}/server_info") as response:
                    document = json.loads(await response.text())
                if int(str(document["uptime_all_epochs"]).removesuffix("s")) >= seconds:
                    return
                await asyncio.sleep(0.1)

    async def second(self) -> None:
        """A second of traffic and work."""
        await asyncio.gather(*(self._ask() for _ in range(REQUESTS_A_CYCLE)))
        for engine in self.engines:
            engine.script.advance(1.0)
        self.clock.now += 1.0

    async def _ask(self) -> None:
        try:
            async with self.session.get(f"{self.gateway.url}/v1/models") as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            pass  # the gateway may be the thing that is gone


@dataclass
class Agent:
    lab: Lab
    parts: Parts

    async def cycles(self, count: int) -> list[CycleReport]:
        """So many cycles, each after a second of traffic."""
        reports = []
        for _ in range(count):
            await self.lab.second()
            reports.append(await self.parts.loop.run_cycle(self.lab.clock()))
        return reports

    async def until(self, wanted: str, most: int) -> list[CycleReport]:
        """Cycles until a finding is there, at most `most`."""
        reports: list[CycleReport] = []
        while len(reports) < most:
            reports += await self.cycles(1)
            if any(finding.slug == wanted for finding in reports[-1].analysis.findings):
                break
        return reports


@asynccontextmanager
async def laboratory(folder: Path, engines: int = 3) -> AsyncIterator[Lab]:
    """Start everything, and stop it again however it ends."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)))
        gateway = Gateway(folder)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        proxy = AdminProxy(session, gateway.admin_url)
        await stack.enter_async_context(proxy.serving())
        made = [Engine(f"engine-{number}") for number in range(engines)]
        for engine in made:
            await engine.start()
            stack.push_async_callback(engine.stop)
            gateway.endpoints.add(engine.serves.port)
        lab = Lab(folder, session, gateway, proxy, made)
        await lab.endpoints_known()
        yield lab
