"""Play a scenario with nobody at the levers: `python -m fleetsim.run --scenario retry-storm -o json`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp

from fleetsim.children import ChildError
from fleetsim.conductor import Conductor, embedded
from fleetsim.scenario import ScenarioError, load_wall_clock, names


async def play(options: argparse.Namespace, workdir: Path) -> dict[str, Any]:
    """Run the scenario in `workdir`; the document that is printed."""
    scenario = load_wall_clock(options.scenario)
    seed = scenario.seed if options.seed is None else options.seed
    load = scenario.load if options.load is None else options.load
    duration_s = scenario.duration_s if options.duration is None else options.duration
    events: list[dict[str, Any]] = []
    async with (
        embedded(options.scenario, workdir, seed, load) as running,
        aiohttp.ClientSession() as session,
    ):
        conductor = Conductor(scenario, running, session)
        async for event in conductor.play(duration_s, with_faults=not options.no_fault):
            events.append(event)
            print(f"run: t={event['t']:.0f} {event['kind']}", file=sys.stderr, flush=True)
        figures = await conductor.outcomes(duration_s)
        async with session.get(f"{running.fleet['admin_url']}/admin/fleet") as answer:
            lag = (await answer.json())["loop_lag_p99_s"]
        return {
            "schema_version": 1,
            "scenario": scenario.name,
            "seed": seed,
            "load": load,
            "offered_rps": running.clients["offered_rps"],
            "capacity_rps": running.fleet["capacity_rps"],
            **asdict(figures),
            "loop_lag_p99_s": lag,
            "events": events,
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fleetsim.run", description=__doc__)
    parser.add_argument("--scenario", required=True, help=f"a file, or one of {', '.join(names())}")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--load", type=float, help="offered first attempts as a share of measured capacity")
    parser.add_argument("--duration", type=float, help="seconds, instead of the scenario's")
    parser.add_argument("--no-fault", action="store_true", help="leave out the timeline")
    parser.add_argument("--workdir", type=Path, help="keep logs here instead of in a temporary folder")
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    try:
        if options.workdir is not None:
            document = asyncio.run(play(options, options.workdir))
        else:
            with tempfile.TemporaryDirectory(prefix="fleetsim-") as folder:
                document = asyncio.run(play(options, Path(folder)))
    except (ScenarioError, ChildError) as error:
        print(f"run: {error}", file=sys.stderr)
        return 2
    if options.output == "json":
        print(json.dumps(document))
    else:
        for name, value in document.items():
            print(f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
