"""CPU of one control cycle over many endpoints: `python -m benchmarks.cycle --endpoints 200`.

A second process serves recorded bodies (about 50 kB each), one port an endpoint, with counters that move
from scrape to scrape. This process scrapes them as the agent does and counts the CPU seconds of its own
thread, part by part; the serving process's CPU is not in it. The first cycle, which learns every body's
layout, is shown apart.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import platform
import random
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

from actuators.model import Lever, LeverKey, LeverReading
from analyzers.model import Analysis, Context
from analyzers.registry import analyze
from collector.history import History
from collector.model import Frame, TargetRole
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import StaticTargets, target
from inferostat.planner import Mode, PlannerState, Policy, PoolPolicy, decide

BODIES = Path(__file__).parents[1] / "tests" / "fixtures" / "live"
VARIANTS = 8
INTERVAL_S = 5.0
POOL_LEVERS = (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)
_COUNTED = re.compile(r"^(\S+_(?:total|count|sum|bucket)(?:\{.*\})?) (\S+)$", re.MULTILINE)

Stage = Callable[[Frame, History], object]
"""A further part of the cycle: called with each frame after it was put into the history."""


@dataclass
class CycleCost:
    """CPU seconds of each part, one entry a cycle."""

    parts: dict[str, list[float]] = field(default_factory=dict)

    def add(self, part: str, seconds: float) -> None:
        self.parts.setdefault(part, []).append(seconds)


class Thinking:
    """Analyze and decide as the loop does them: each cycle knows what the one before found."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._analysis = Analysis(0.0)
        self._state = PlannerState()

    def analyze(self, frame: Frame, history: History) -> None:
        context = Context(
            interval_s=self._interval_s,
            previous=self._analysis.findings,
            previous_measures=self._analysis.measures,
        )
        self._analysis = analyze(history, frame, context, frame.at)

    def decide(self, frame: Frame, history: History) -> None:
        keys = [LeverKey(lever, name, name) for name in frame.topology.pools for lever in POOL_LEVERS]
        keys += [LeverKey(Lever.WEIGHT, one.pool, one.address) for one in frame.topology.endpoints.values()]
        readings = [LeverReading(key, True, 100.0 if key.lever is Lever.WEIGHT else None) for key in keys]
        policy = Policy({name: PoolPolicy(mode=Mode.ADVISE) for name in frame.topology.pools})
        self._state = decide(self._analysis, frame, readings, policy, self._state, frame.at).state

    def stages(self) -> dict[str, Stage]:
        return {"analyze": self.analyze, "decide": self.decide}


class SteppedClock:
    """Wall clock that jumps one interval a cycle: windows fill as in a live agent, without its waiting."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._jumped = 0.0

    def jump(self) -> None:
        self._jumped += self._interval_s

    def __call__(self) -> float:
        return time.time() + self._jumped


def moved(body: str, step: int) -> bytes:
    """The body with every counter and histogram part `step` higher."""
    return _COUNTED.sub(lambda found: f"{found[1]} {float(found[2]) + step}", body).encode()


def serve(bodies: Sequence[str], endpoints: int, seed: int, ports: Connection) -> None:
    """Serve until killed; sends the ports, one an endpoint."""
    asyncio.run(_serve(bodies, endpoints, random.Random(seed), ports))


async def _serve(bodies: Sequence[str], endpoints: int, rng: random.Random, ports: Connection) -> None:
    series = [[moved(body, 50 * step) for step in range(VARIANTS)] for body in bodies]
    servers = []
    for _ in range(endpoints):
        answers, place = rng.choice(series), rng.randrange(VARIANTS)
        servers.append(await asyncio.start_server(_answer(answers, place), "127.0.0.1", 0))
    ports.send([server.sockets[0].getsockname()[1] for server in servers])
    await asyncio.Event().wait()


def _answer(
    answers: Sequence[bytes], place: int
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal place
        while not reader.at_eof():
            if (await reader.readline()) == b"\r\n":
                body = answers[place % len(answers)]
                place += 1
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    return handle


async def measure(ports: Sequence[int], cycles: int, stages: Mapping[str, Stage]) -> CycleCost:
    """Run `cycles` cycles back to back, each with all parts."""
    targets = [target(f"127.0.0.1:{port}", TargetRole.ENGINE, name=f"engine-{i}") for i, port in enumerate(ports)]
    clock = SteppedClock(INTERVAL_S)
    settings = ScrapeSettings(interval_s=INTERVAL_S, jitter=0.0, deadline_s=30.0)
    source = ScrapeSource(StaticTargets(targets), settings, clock)
    history, cost = History(), CycleCost()
    try:
        for _ in range(cycles):
            began = time.process_time()
            clock.jump()
            frame = await source.collect(clock())
            down = [status for status in frame.targets if not status.up]
            if down:
                raise RuntimeError(f"expected every target up, found {down[0].name} down: {down[0].error}")
            cost.add("HTTP", source.cost.http_s)
            cost.add("parse", source.cost.parse_s)
            cost.add("frame", source.cost.frame_s)
            for name, stage in {"history": lambda f, h: h.append(f), **stages}.items():
                before = time.thread_time()
                stage(frame, history)
                cost.add(name, time.thread_time() - before)
            cost.add("whole cycle", time.process_time() - began)
    finally:
        await source.close()
    return cost


def run(
    endpoints: int, cycles: int, seed: int, bodies: Path = BODIES, stages: Mapping[str, Stage] | None = None
) -> CycleCost:
    """Serve and measure; the serving process is gone when this returns."""
    texts = [path.read_text("utf-8") for path in sorted(bodies.glob("vllm-*.prom"))]
    if not texts:
        raise FileNotFoundError(f"expected recorded vLLM bodies in {bodies}, found none; give --bodies")
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    server = spawn.Process(target=serve, args=(texts, endpoints, seed, there), daemon=True)
    server.start()
    there.close()  # the child's copy alone stays open, so that its end is seen if it fails to start
    try:
        ports: list[int] = here.recv()
        return asyncio.run(measure(ports, cycles, stages or {}))
    finally:
        server.terminate()
        server.join()
        here.close()


def table(cost: CycleCost) -> str:
    """CPU milliseconds a part: first cycle, then median and worst of the others."""
    lines = [f"{'CPU ms':<12} {'first':>8} {'median':>8} {'worst':>8}"]
    for part, seconds in cost.parts.items():
        first, later = seconds[0] * 1e3, [s * 1e3 for s in seconds[1:]] or [float("nan")]
        lines.append(f"{part:<12} {first:>8.1f} {statistics.median(later):>8.1f} {max(later):>8.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bodies", type=Path, default=BODIES, help="folder of vllm-*.prom bodies")
    given = parser.parse_args()
    cost = run(given.endpoints, given.cycles, given.seed, given.bodies, Thinking(INTERVAL_S).stages())
    print(
        f"{given.endpoints} endpoints, {given.cycles} cycles, seed {given.seed}, Python {platform.python_version()},"
        f" numpy {version('numpy')}, aiohttp {version('aiohttp')}"
    )
    print(table(cost))


if __name__ == "__main__":
    main()
