"""A real Prometheus over a live embedded fleet, and the questions that Grafana would ask it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml

from fleetsim.children import spawn, terminate, wait_for_file
from inferostat.embedded import FleetSetup, fleet_config
from rules.export import FOLDER, RULE_FILES

ROLES = ("engine", "gpu", "gateway")
WINDOW_S = 10
START_S = 30.0  # a busy machine imports slowly

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a query gave: series count and the values of all, or Prometheus' error."""

    series: int
    values: tuple[float, ...]
    error: str = ""

    @property
    def finite(self) -> bool:
        return bool(self.values) and all(map(math.isfinite, self.values))


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(self, path: str, **parameters: str) -> Json:
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as response:
            answer: Json = await response.json()
            return answer

    async def ready(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self._url}/-/ready") as response:
                return response.status == 200
        return False

    async def panel(self, expr: str, instant: bool) -> Answer:
        """As the panel asks: the present, or the last seconds of a range."""
        now = time.time()
        if instant:
            answer = await self.get("query", query=expr, time=str(now))
        else:
            answer = await self.get("query_range", query=expr, start=str(now - 3), end=str(now), step="1")
        if answer["status"] != "success":
            return Answer(0, (), answer["error"])
        result = answer["data"]["result"]
        points = [series["value"] if instant else series["values"][-1] for series in result]
        return Answer(len(result), tuple(float(value) for _, value in points))

    async def label_values(self, series: str, label: str) -> list[str]:
        answer = await self.get(f"label/{label}/values", **{"match[]": series})
        values: list[str] = answer["data"]
        return values


@asynccontextmanager
async def process(log: Path, *command: str) -> AsyncIterator[Popen[bytes]]:
    """A child that ends with this block, or with this process; its output goes to `log`."""
    with log.open("wb") as output:
        child = spawn(command, output)
        try:
            yield child
        finally:
            await terminate(child, 10)


@dataclass(frozen=True)
class Fleet:
    """A fleet under steady load, and the folder of its files (`targets.json` is what discovery reads)."""

    folder: Path
    described: Json
    load_url: str

    async def load(self, factor: float) -> None:
        """Offer `factor` times the scenario's rate from now on."""
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.load_url}/load", json={"factor": factor}) as answer,
        ):
            assert answer.status == 200, await answer.text()


@asynccontextmanager
async def embedded_fleet(folder: Path) -> AsyncIterator[Fleet]:
    """Engines, exporter, Envoy and clients, each kind in its own process."""
    arguments = ("--workdir", str(folder), "--scenario", "steady")
    python = (sys.executable, "-m")
    logs = folder / "fleet.log", folder / "clients.log"
    async with process(logs[0], *python, "fleetsim.fleet", *arguments) as fleet:
        described = json.loads(await wait_for_file(folder / "fleet.json", fleet, logs[0], START_S))
        load = ("fleetsim.clients", *arguments, "--seed", "1", "--start")
        async with process(logs[1], *python, *load) as clients:
            control = json.loads(await wait_for_file(folder / "clients.json", clients, logs[1], START_S))
            yield Fleet(folder, described, control["control_url"])


@asynccontextmanager
async def agent(fleet: Fleet) -> AsyncIterator[str]:
    """The agent, which watches the fleet and moves nothing; yields its host:port."""
    gateway = fleet.described["gateway"]
    document = fleet_config(
        FleetSetup(
            admin_url=fleet.described["admin_url"],
            gateway_admin_url=gateway["admin_url"],
            eds_path=gateway["eds_path"],
            cluster=gateway["cluster"],
            pool="default",
            max_num_seqs=32,
            max_replicas=8,
            price_usd_per_gpu_hour=2.95,
            client_timeout_s=10.0,
            client_timeout_on="answer",
            client_retries=2,
            ready_within_s=40.0,
            levers=frozenset(),
        ),
        fleet.folder,
    )
    config, url, log = (fleet.folder / name for name in ("inferostat.yaml", "agent.url", "agent.log"))
    config.write_text(yaml.safe_dump(document))
    command = ("inferostat.cli", "run", "--config", str(config), "--url-file", str(url))
    async with process(log, sys.executable, "-m", *command) as child:
        yield urlsplit(await wait_for_file(url, child, log, START_S)).netloc


@asynccontextmanager
async def prometheus(fleet: Fleet, agent: str) -> AsyncIterator[Prometheus]:
    """A Prometheus with the shipped rules that scrapes fleet and agent each second."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("needs prometheus (Debian package of that name)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    folder, log = fleet.folder, fleet.folder / "prometheus.log"
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(folder / "targets.json", agent)))
    command = (
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    )
    async with AsyncExitStack() as stack:
        child = await stack.enter_async_context(process(log, *command))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = Prometheus(f"http://{address}", session)
        await _until_ready(client, child, log)
        yield client


def _config(targets: Path, agent: str) -> Json:
    discovered = [
        {
            "job_name": role,
            "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "5s"}],
            "relabel_configs": [{"source_labels": ["__role__"], "regex": role, "action": "keep"}],
        }
        for role in ROLES
    ]
    own = {"job_name": "inferostat", "static_configs": [{"targets": [agent]}]}
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / name) for name in RULE_FILES],
        "scrape_configs": [*discovered, own],
    }


async def _until_ready(client: Prometheus, child: Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not await client.ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"expected Prometheus to be ready, found:\n{log.read_text()[-2000:]}")
        await asyncio.sleep(0.1)
