"""All scenarios x policies x seeds on the cores of this machine: `python -m benchmarks.arena [--quick]`.

Finished runs are kept in the output folder, so that an interrupted arena goes on where it was; runs of other code are
played anew. The oracle's plans are searched on the first seed, and the best one is played on all.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.arena.compare import Table
from benchmarks.arena.jobs import AGENT, ORACLE, QUICK, QUICK_DURATION_S, Wanted, unknown
from benchmarks.arena.page import page
from benchmarks.arena.playing import CURVE_STEP_S, play_job
from benchmarks.arena.report import Header, report
from benchmarks.arena.running import Arena
from benchmarks.arena.source import Fingerprints, revision
from benchmarks.arena.store import Played, Store
from fleetsim.policies.oracle import plans
from fleetsim.policies.registry import POLICIES
from fleetsim.scenario import library, load_scenario

SEEDS = (1, 2, 3)
G = (0.8, 1.25)
QUICK_PLAN_STEP = 3  # half the time of a quick arena would go into the search


def wanted(options: argparse.Namespace) -> Wanted:
    """ValueError names what is not known."""
    scenarios = options.scenarios or (QUICK if options.quick else tuple(library()))
    policies = options.policies or (*POLICIES, ORACLE, AGENT)
    problems = [
        unknown(scenarios, library(), "scenarios"),
        unknown(policies, (*POLICIES, ORACLE, AGENT), "policies"),
    ]
    if any(problems):
        raise ValueError("; ".join(problem for problem in problems if problem))
    return Wanted(
        scenarios=scenarios,
        policies=policies,
        seeds=options.seeds or (SEEDS[:1] if options.quick else SEEDS),
        g=(() if options.quick else G) if options.g is None else options.g,
        duration_s=QUICK_DURATION_S if options.quick and options.duration is None else options.duration,
        plan_step=QUICK_PLAN_STEP if options.quick else 1,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    try:
        asked = wanted(options)
    except ValueError as error:
        print(f"arena: {error}", file=sys.stderr)
        return 2
    store, commit = Store(options.out), str(revision())
    if options.fresh:
        store.clear()
    started = time.monotonic()
    try:
        arena, played = _run(asked, store, commit, options.jobs)
    except KeyboardInterrupt:
        print(f"arena: interrupted; finished runs are in {store.path}, start again to go on", file=sys.stderr)
        return 130
    except BrokenProcessPool:
        print("arena: a worker died (out of memory?); start again with fewer --jobs to go on", file=sys.stderr)
        return 3
    header = Header(
        command=shlex.join(["python", "-m", "benchmarks.arena", *given]),
        commit=commit,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        seeds=asked.seeds,
        machine=f"{os.cpu_count()} cores, {options.jobs} at a time, Python {platform.python_version()}",
        wall_s=time.monotonic() - started,
        resumed=arena.resumed,
        runs_s=sum(one.wall_s for one in played),
    )
    return _write(played, header, options)


def _run(asked: Wanted, store: Store, commit: str, workers: int) -> tuple[Arena, list[Played]]:
    scenarios = {name: load_scenario(name) for name in asked.scenarios}
    requests = {
        name: s.load * s.engines * (s.duration_s if asked.duration_s is None else asked.duration_s)
        for name, s in scenarios.items()
    }
    searches = {name: len(plans(scenario)) for name, scenario in scenarios.items()}
    with (
        ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        ) as progress,
    ):
        bar = progress.add_task("arena", total=None)
        lost = 0

        def tell(done: int, of: int, played: Played | None) -> None:
            nonlocal lost
            lost += played is not None and played.error is not None
            name = "arena" if played is None else f"{played.job.scenario}, {played.job.policy}"
            progress.update(bar, completed=done, total=of, description=name + (f" ({lost} failed)" if lost else ""))

        arena = Arena(executor, play_job, store, Fingerprints(), commit, tell)
        return arena, arena.run(asked, requests, searches)


def _write(played: Sequence[Played], header: Header, options: argparse.Namespace) -> int:
    failed = [one for one in played if one.error is not None]
    table = Table(played)
    text = report(table, header, failed)
    for path in (options.out / "arena.md", *([options.report] if options.report else [])):
        path.write_text(text)
        print(path)
    triggers = {name: load_scenario(name).trigger for name in table.scenarios}
    intervals = {name: (t.start_s, t.end_s) for name, t in triggers.items()}
    about = f"{header.command}; commit {header.commit}; {header.date}; {header.machine}"
    (options.out / "arena.html").write_text(page(table, about, intervals, CURVE_STEP_S))
    print(options.out / "arena.html")
    for one in failed:
        print(f"arena: {one.job.key} failed: {one.error}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one seed, {QUICK_DURATION_S:g} s, no other g, a third of the oracle's plans; of {', '.join(QUICK)}",
    )
    parser.add_argument("--scenarios", type=_words, metavar="A,B", help="default: the whole library")
    parser.add_argument("--policies", type=_words, metavar="P,Q", help="default: all peers, oracle, inferostat")
    parser.add_argument("--seeds", type=_seeds, metavar="1,2,3")
    parser.add_argument(
        "--g", type=_factors, metavar="0.8,1.25", help="play the first seed with engines so much slower"
    )
    parser.add_argument("--duration", type=_positive, metavar="S", help="seconds, instead of the scenarios' own")
    parser.add_argument("--jobs", type=_workers, default=os.cpu_count() or 1, metavar="N", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("var/arena"), metavar="DIR")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", dest="fresh", action="store_false", help="keep finished runs (default)")
    again.add_argument("--fresh", dest="fresh", action="store_true", help="play all runs anew")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the Markdown here as well")
    parser.set_defaults(fresh=False)
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _words(text))


def _factors(text: str) -> tuple[float, ...]:
    return tuple(factor for factor in map(_positive, _words(text)) if factor != 1.0)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def _workers(text: str) -> int:
    return max(1, int(text))


if __name__ == "__main__":
    sys.exit(main())
