"""The clients process: open-loop load on the fleet's gateway. `python -m fleetsim.clients --workdir DIR`.

Reads `fleet.json` from the working folder, writes `clients.json` with its control address and, as they end,
one line a first attempt to `clients.jsonl`. Control: POST /start, PUT /load {"factor", "prompt_scale"}, GET
/stats, POST /stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import aiohttp
from aiohttp import web
from pydantic import ValidationError

from fleetsim.client_stats import ClientStats
from fleetsim.events import LoadEvent
from fleetsim.files import replace_json
from fleetsim.fleet import run_on_best_loop, until_signalled
from fleetsim.http import serve
from fleetsim.request import Record, Requester
from fleetsim.scenario import Scenario, ScenarioError, load_wall_clock


class Clients:
    """Poisson arrivals of first attempts at `factor` times the base rate, each an SDK client of its own."""

    def __init__(
        self,
        scenario: Scenario,
        session: aiohttp.ClientSession,
        *,
        url: str,
        rate_rps: float,
        seed: int,
        log: TextIO,
    ) -> None:
        self.started_at: float | None = None
        self._rate_rps = rate_rps
        self._load = LoadEvent(at_s=0, kind="load")
        self._log = log
        self._workload = scenario.workload.workload
        # Streams of their own, so that a retry more or less does not change who arrives when.
        self._arrivals, self._lengths = random.Random(f"arrivals-{seed}"), random.Random(f"lengths-{seed}")
        self._stats = ClientStats(self.elapsed)
        self._requester = Requester(
            session,
            url,
            timeout_s=scenario.clients.timeout_s,
            stream=scenario.clients.stream,
            retries=scenario.clients.retries,
            rng=random.Random(f"backoff-{seed}"),
            clock=self.elapsed,
            on_attempt=self._stats.attempt,
        )
        self._epoch = time.monotonic()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._source: asyncio.Task[None] | None = None

    def elapsed(self) -> float:
        return time.monotonic() - self._epoch

    @property
    def offered_rps(self) -> float:
        return self._rate_rps * self._load.factor

    def start(self) -> float:
        """Begin to send, once; the wall-clock time that is t = 0."""
        if self.started_at is None:
            self._epoch, self.started_at = time.monotonic(), time.time()
            self._source = asyncio.get_running_loop().create_task(self._arrive())
        return self.started_at

    def change(self, load: LoadEvent) -> None:
        self._load = load
        self._changed.set()

    async def stop(self) -> None:
        """Stop sending and give up what is open; every first attempt has its line in the log afterwards."""
        tasks = [*self._tasks, *([self._source] if self._source is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._log.flush()

    def stats(self) -> dict[str, Any]:
        return {**self._stats.summary(), "in_flight": len(self._tasks), "nominal_rps": self.offered_rps}

    async def _arrive(self) -> None:
        loop = asyncio.get_running_loop()
        due = self.elapsed()
        while True:
            self._changed.clear()
            if self.offered_rps > 0:
                due += self._arrivals.expovariate(self.offered_rps)
                wait = due - self.elapsed()
            else:
                wait = None
            if wait is None or wait > 0:
                try:
                    await asyncio.wait_for(self._changed.wait(), wait)
                except TimeoutError:
                    pass
                else:  # arrivals have no memory: the next one is drawn anew at the new rate
                    due = self.elapsed()
                    continue
            task = loop.create_task(self._one())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self) -> None:
        prompt, output = self._workload.sample(self._lengths, self._load.prompt_scale)
        record = await self._requester.run(prompt, output)
        self._finish(record)

    def _finish(self, record: Record) -> None:
        self._stats.finished(record)
        self._log.write(json.dumps(record.to_json()) + "\n")


def control_app(clients: Clients) -> web.Application:
    async def start(request: web.Request) -> web.Response:
        return web.json_response({"started_at": clients.start()})

    async def load(request: web.Request) -> web.Response:
        try:
            change = LoadEvent.model_validate({"factor": 1.0, **await request.json(), "at_s": 0, "kind": "load"})
        except (ValidationError, ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        clients.change(change)
        return web.json_response({"offered_rps": clients.offered_rps})

    async def stats(request: web.Request) -> web.Response:
        return web.json_response(clients.stats())

    async def stop(request: web.Request) -> web.Response:
        await clients.stop()
        return web.json_response(clients.stats())

    app = web.Application()
    app.add_routes(
        [web.post("/start", start), web.put("/load", load), web.get("/stats", stats), web.post("/stop", stop)]
    )
    return app


@asynccontextmanager
async def running_clients(scenario: Scenario, workdir: Path, seed: int, load: float) -> AsyncIterator[dict[str, Any]]:
    """Clients ready to start inside this process; yields what `clients.json` says."""
    fleet = json.loads((workdir / "fleet.json").read_text())
    rate_rps = load * float(fleet["capacity_rps"])
    log_path = workdir / "clients.jsonl"
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    with log_path.open("w", buffering=1) as log:
        async with aiohttp.ClientSession(connector=connector) as session:
            clients = Clients(scenario, session, url=fleet["gateway"]["url"], rate_rps=rate_rps, seed=seed, log=log)
            try:
                async with serve(control_app(clients)) as address:
                    described = {
                        "pid": os.getpid(),
                        "control_url": f"http://{address}",
                        "log_path": str(log_path),
                        "seed": seed,
                        "load": load,
                        "offered_rps": rate_rps,
                    }
                    replace_json(workdir / "clients.json", described)
                    yield described
            finally:
                await clients.stop()


async def _serve_until_signalled(scenario: Scenario, options: argparse.Namespace) -> None:
    stopped = asyncio.get_running_loop().create_task(until_signalled())
    seed = scenario.seed if options.seed is None else options.seed
    load = scenario.load if options.load is None else options.load
    async with running_clients(scenario, options.workdir, seed, load) as described:
        if options.start:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{described['control_url']}/start") as answer,
            ):
                answer.raise_for_status()
        await stopped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fleetsim.clients", description=__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="where the fleet wrote fleet.json")
    parser.add_argument("--scenario", default="steady", help="a packaged scenario or a file")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--load", type=float, help="offered first attempts as a share of measured capacity")
    parser.add_argument("--start", action="store_true", help="send at once instead of waiting for POST /start")
    options = parser.parse_args()
    try:
        run_on_best_loop(_serve_until_signalled(load_wall_clock(options.scenario), options))
    except (ScenarioError, FileNotFoundError) as error:
        print(f"clients: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
