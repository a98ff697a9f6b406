"""The agent over a long time: `python -m benchmarks.soak --minutes 30 [-o json]`.

An embedded fleet and the agent, each in its own process, with a load that swells and falls so that there is
something to see. Every ten seconds: the agent's memory, cycles and overruns. At the end: cycles that were missed,
growth of memory after the warm-up (a straight line through the samples), and processor time of every process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks.agent import AgentStarter, Metrics, configuration, metric, metrics
from benchmarks.processes import children, usage
from fleetsim.children import ChildError
from fleetsim.conductor import Embedded, embedded
from fleetsim.scenario import ScenarioError, load_scenario

SAMPLE_S = 10.0
WARM_UP_S = 300.0
MOST_GROWTH_PERCENT = 5.0
# The load goes through these, one after the other, so that a run of any length sees them all.
LOADS, LOAD_FOR_S = (1.0, 1.2, 0.6, 1.0), 45.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The agent at one moment. `at`: seconds since it was ready. `cycles` and `overruns` count from its start."""

    at: float
    rss_bytes: int
    cycles: float
    failed: float
    overruns: float
    last_cycle_age_s: float


@dataclass(frozen=True)
class Report:
    """`missed`: cycles that were due and did not happen. `growth_percent`: None in a run within the warm-up."""

    minutes: float
    interval_s: float
    cycles: float
    due: float
    missed: float
    overruns: float
    failed: float
    oldest_cycle_s: float
    rss_mib_after_warm_up: float | None
    rss_mib_at_end: float
    growth_percent: float | None
    cpu_share: dict[str, float]
    loop_lag_p99_s: float | None

    @property
    def good(self) -> bool:
        """No cycle missed, and memory within bounds as far as the run was long enough to tell."""
        grown = self.growth_percent is not None and self.growth_percent >= MOST_GROWTH_PERCENT
        return self.missed < 1 and not grown


def growth_percent(samples: Sequence[Sample], warm_up_s: float = WARM_UP_S) -> float | None:
    """Growth from the end of the warm-up to the end of the run by least squares, in percent of its beginning.

    None with fewer than three samples behind the warm-up: a line through two points hides its own scatter.
    """
    late = [sample for sample in samples if sample.at >= warm_up_s]
    if len(late) < 3:
        return None
    times = np.array([sample.at for sample in late])
    sizes = np.array([float(sample.rss_bytes) for sample in late])
    slope, start = np.polyfit(times - times[0], sizes, 1)
    return float(100.0 * slope * (times[-1] - times[0]) / start)


def report(
    samples: Sequence[Sample],
    interval_s: float,
    cpu_share: Mapping[str, float],
    lag_s: float | None,
    warm_up_s: float = WARM_UP_S,
) -> Report:
    """The figures between the first and the last sample; those hold whole cycles, hence the floor."""
    first, last = samples[0], samples[-1]
    due = np.floor((last.at - first.at) / interval_s)
    cycles = last.cycles - first.cycles
    after = next((sample for sample in samples if sample.at >= warm_up_s), None)
    return Report(
        minutes=(last.at - first.at) / 60.0,
        interval_s=interval_s,
        cycles=cycles,
        due=float(due),
        # one sample may fall just before a cycle and the other just behind one
        missed=max(0.0, float(due) - 1.0 - cycles),
        overruns=last.overruns - first.overruns,
        failed=last.failed - first.failed,
        oldest_cycle_s=max(sample.last_cycle_age_s for sample in samples),
        rss_mib_after_warm_up=None if after is None else after.rss_bytes / 2**20,
        rss_mib_at_end=last.rss_bytes / 2**20,
        growth_percent=growth_percent(samples, warm_up_s),
        cpu_share=dict(cpu_share),
        loop_lag_p99_s=lag_s,
    )


async def soak(
    minutes: float, workdir: Path, scenario_name: str = "steady", retention_s: float | None = None
) -> tuple[Report, list[Sample]]:
    """Run fleet, clients and agent for so long. `retention_s`: of the agent's history, None for its default."""
    scenario = load_scenario(scenario_name)
    async with embedded(scenario_name, workdir) as running, aiohttp.ClientSession() as session:
        document = configuration(running, scenario, workdir)
        if retention_s is not None:
            document["retention"] = retention_s
        async with AgentStarter(document, workdir).running() as agent:
            async with session.post(f"{running.clients['control_url']}/start") as answer:
                answer.raise_for_status()
            while metric(await metrics(session, agent), "inferostat_last_cycle_timestamp_seconds") is None:
                await asyncio.sleep(0.1)
            processes = _processes(running, agent.process.pid)
            before = {name: usage(pid).cpu_s for name, pid in processes.items()}
            began = time.monotonic()
            samples: list[Sample] = []
            swelling = asyncio.create_task(_swell(session, running.clients["control_url"]))
            try:
                while True:
                    at = time.monotonic() - began
                    samples.append(_sample(at, agent.process.pid, await metrics(session, agent)))
                    if at >= 60.0 * minutes:
                        break
                    await asyncio.sleep(max(0.0, began + len(samples) * SAMPLE_S - time.monotonic()))
            finally:
                swelling.cancel()
                await asyncio.gather(swelling, return_exceptions=True)
            elapsed = time.monotonic() - began
            cpu = {name: (usage(pid).cpu_s - before[name]) / elapsed for name, pid in processes.items()}
            async with session.get(f"{running.fleet['admin_url']}/admin/fleet") as answer:
                lag = (await answer.json())["loop_lag_p99_s"]
        return report(samples, document["interval"], cpu, lag), samples


def _processes(running: Embedded, agent: int) -> dict[str, int]:
    fleet = int(running.fleet["pid"])
    named = {"agent": agent, "fleet": fleet, "clients": int(running.clients["pid"])}
    return named | dict(zip(("Envoy",), children(fleet), strict=False))


def _sample(at: float, pid: int, found: Metrics) -> Sample:
    def value(name: str, **labels: str) -> float:
        return metric(found, name, **labels) or 0.0

    cycles = {result: value("inferostat_cycles_total", result=result) for result in ("ok", "degraded", "failed")}
    return Sample(
        at=at,
        rss_bytes=usage(pid).rss_bytes,
        cycles=sum(cycles.values()),
        failed=cycles["failed"],
        overruns=value("inferostat_cycle_overruns_total"),
        last_cycle_age_s=max(0.0, time.time() - value("inferostat_last_cycle_timestamp_seconds")),
    )


async def _swell(session: aiohttp.ClientSession, control_url: str) -> None:
    while True:
        for factor in LOADS:
            async with session.put(f"{control_url}/load", json={"factor": factor}) as answer:
                answer.raise_for_status()
            await asyncio.sleep(LOAD_FOR_S)


def table(found: Report) -> str:
    """The report for people."""
    lines = [f"{name:<24} {_text(value)}" for name, value in asdict(found).items() if name != "cpu_share"]
    lines += [f"{'cpu share of ' + name:<24} {share:.1%}" for name, share in found.cpu_share.items()]
    return "\n".join(lines)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--scenario", default="steady")
    parser.add_argument(
        "--retention", type=float, help="seconds of history, to tell its growth up to there from a leak"
    )
    parser.add_argument("--workdir", type=Path, help="keep logs and journal here")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    try:
        if options.workdir is not None:
            found, samples = asyncio.run(soak(options.minutes, options.workdir, options.scenario, options.retention))
        else:
            with tempfile.TemporaryDirectory(prefix="inferostat-soak-") as folder:
                found, samples = asyncio.run(soak(options.minutes, Path(folder), options.scenario, options.retention))
    except (ScenarioError, ChildError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    if options.output == "json":
        document: dict[str, Any] = {"schema_version": 1, **asdict(found), "samples": [asdict(s) for s in samples]}
        print(json.dumps(document))
    else:
        print(table(found))
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
