"""A real Prometheus over a live embedded fleet, and the questions that Grafana would ask it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from fleetsim.children import spawn, terminate, wait_for_file
from rules.export import FOLDER, RULE_FILES

ROLES = ("engine", "gpu", "gateway")
WINDOW_S = 10

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


@asynccontextmanager
async def embedded_fleet(folder: Path) -> AsyncIterator[Path]:
    """A fleet under steady load; yields the file its targets are discovered from."""
    arguments = ("--workdir", str(folder), "--scenario", "steady")
    python = (sys.executable, "-m")
    log = folder / "fleet.log"
    async with process(log, *python, "fleetsim.fleet", *arguments) as fleet:
        await wait_for_file(folder / "fleet.json", fleet, log, 20)
        load = ("fleetsim.clients", *arguments, "--seed", "1", "--start")
        async with process(folder / "clients.log", *python, *load):
            yield folder / "targets.json"


@asynccontextmanager
async def served(body: Callable[[], bytes]) -> AsyncIterator[str]:
    """A target on loopback whose /metrics is `body()`; yields its host:port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=body(), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def prometheus(folder: Path, targets: Path, agent: str) -> AsyncIterator[Prometheus]:
    """A Prometheus with the shipped rules that scrapes each second."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("needs prometheus (Debian package of that name)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(targets, agent)))
    command = (
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    )
    async with AsyncExitStack() as stack:
        child = await stack.enter_async_context(process(folder / "prometheus.log", *command))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = Prometheus(f"http://{address}", session)
        await _until_ready(client, child, folder / "prometheus.log")
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
    deadline = time.monotonic() + 20
    while not await client.ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"expected Prometheus to be ready, found:\n{log.read_text()[-2000:]}")
        await asyncio.sleep(0.1)
