"""The fleet process: engines, GPU exporter, Envoy and admin API. `python -m fleetsim.fleet --workdir DIR`.

Writes `targets.json` (Prometheus file_sd) and keeps it current, and `fleet.json` with every address once
all is up. Ends on SIGTERM or SIGINT, and with its parent if asked to.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from fleetsim.admin import AdminApi
from fleetsim.capacity import capacity
from fleetsim.children import ChildError
from fleetsim.dcgm import Exporter
from fleetsim.file_sd import exporter_target, gateway_target
from fleetsim.files import replace_json
from fleetsim.gateway import CLUSTER, Gateway
from fleetsim.http import serve
from fleetsim.lag import LoopLag
from fleetsim.pool import Pool
from fleetsim.scenario import Scenario, ScenarioError, load_wall_clock

EXPORTER_PERIOD_S = 1.0


@asynccontextmanager
async def running_fleet(scenario: Scenario, workdir: Path) -> AsyncIterator[dict[str, Any]]:
    """The whole fleet inside this process, Envoy as its child; yields what `fleet.json` says."""
    # Only ratios of it are used, so the seed of the lengths does not matter: the estimate is good to 1 %.
    replica_capacity = capacity(scenario.hardware.profile, scenario.workload.workload)
    gateway, exporter, lag = Gateway(workdir), Exporter(), LoopLag()
    targets_path = workdir / "targets.json"
    pool = Pool(scenario, gateway.endpoints, targets_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(gateway.stop)
        await gateway.start()
        exporter_address = await stack.enter_async_context(serve(_exporter_app(exporter)))
        exporter_url = f"http://{exporter_address}"
        admin = AdminApi(pool, gateway, exporter_url, lambda: lag.p99_s)
        admin_address = await stack.enter_async_context(serve(admin.app()))
        pool.other_targets = [
            exporter_target(exporter_address),
            gateway_target(gateway.admin_address, CLUSTER),
        ]
        stack.push_async_callback(pool.stop)
        await pool.start()
        collected = asyncio.Event()
        await stack.enter_async_context(_background(lag.run(), _collect(exporter, pool, collected)))
        await collected.wait()  # an exporter that has nothing to say yet is no exporter to an agent
        described = {
            "pid": os.getpid(),
            "scenario": scenario.name,
            "admin_url": f"http://{admin_address}",
            "gateway": gateway.describe(),
            "exporter_url": exporter_url,
            "targets_path": str(targets_path),
            "engines": scenario.engines,
            "capacity_rps_per_replica": replica_capacity.requests_per_s,
            "capacity_rps": replica_capacity.requests_per_s * scenario.engines,
        }
        replace_json(workdir / "fleet.json", described)
        yield described


def _exporter_app(exporter: Exporter) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=exporter.render())

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    return app


async def _collect(exporter: Exporter, pool: Pool, collected: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    while True:
        await asyncio.sleep(EXPORTER_PERIOD_S)
        now = loop.time()
        exporter.collect([replica.reading(now - before) for replica in pool.allocated], now - before)
        collected.set()
        before = now


@asynccontextmanager
async def _background(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.get_running_loop().create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_signalled() -> None:
    """Return at the first SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def run_on_best_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed: the same times, for less processor."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve_until_signalled(scenario: Scenario, workdir: Path) -> None:
    stopped = asyncio.get_running_loop().create_task(until_signalled())
    async with running_fleet(scenario, workdir) as described:
        print(
            f"fleet: {scenario.name} is up, admin API at {described['admin_url']}",
            file=sys.stderr,
            flush=True,
        )
        await stopped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fleetsim.fleet", description=__doc__)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--scenario", default="steady", help="a packaged scenario or a file")
    options = parser.parse_args()
    try:
        scenario = load_wall_clock(options.scenario)
        options.workdir.mkdir(parents=True, exist_ok=True)
        run_on_best_loop(_serve_until_signalled(scenario, options.workdir))
    except (ScenarioError, ChildError) as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
