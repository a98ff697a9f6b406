"""Whether a two-minute fault outlives itself: `python -m benchmarks.metastable`.

One 8B replica on an H100, Azure conversation lengths, clients that wait 10 s for a first token and try twice more. The
replica takes twice as long for each step from 300 to 420 s, then it is well again. The table sets what happens beside
figures published for another simulator of the same engine model: in kind, since seed, arrivals and limits differ.

Goodput here is answers a second by when they come, over first attempts a second; above 1 a backlog is worked off.
A retry budget of 10 % lets one in ten retries of clients pass at the gateway; the others are told not to come again.
Attempts are those let in, a first attempt.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from fleetsim.scenario import Scenario, parse_scenario
from fleetsim.virtual.record import CallRecord
from fleetsim.virtual.world import World

ACTOR = "operator"
TRIGGER = (300.0, 420.0)
AFTER = (420.0, 540.0)
LATE = (900.0, 1200.0)  # 8 to 13 minutes after


@dataclass(frozen=True, slots=True)
class Case:
    """A row: what is done about the storm, from the start."""

    load: float
    aborts: bool = False  # whether the engine hears that a client left
    max_waiting: int | None = None
    retry_budget: float | None = None  # percent of retries let in

    @property
    def title(self) -> str:
        parts = ["aborts" if self.aborts else "keeps timed-out work"]
        parts += [f"waiting queue <= {self.max_waiting}"] if self.max_waiting is not None else []
        parts += [f"retry budget {self.retry_budget:g} %"] if self.retry_budget is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Fate:
    """Goodput over first attempts while the fault lasts, in the two minutes after it and 8 to 13 minutes after it;
    attempts let in a first attempt in those last minutes. None where nothing was offered."""

    during: float | None
    after: float | None
    late: float | None
    attempts: float | None


PUBLISHED = {
    Case(0.6): Fate(0.64, 0.05, 0.00, 3.0),
    Case(0.6, aborts=True): Fate(0.71, 1.28, 1.01, 1.0),
    Case(0.8): Fate(0.31, 0.00, 0.00, 3.0),
    Case(0.8, max_waiting=100): Fate(0.47, 1.08, 1.00, 1.0),
    Case(0.8, retry_budget=10.0): Fate(0.31, 0.00, 1.00, 1.0),
    Case(0.9, retry_budget=10.0): Fate(0.21, 0.00, 0.00, 1.1),
    Case(0.9, aborts=True, max_waiting=100, retry_budget=10.0): Fate(0.50, 1.11, 1.00, 1.0),
}


def scenario(case: Case, duration_s: float) -> Scenario:
    """The incident as a scenario of virtual time."""
    document = {
        "name": "metastable",
        "about": "One replica, twice as slow for two minutes.",
        "truth": {"what": "retries and abandoned work sustain what a slow replica began."},
        "load": case.load,
        "engines": 1,
        "max_replicas": 1,
        "duration_s": duration_s,
        "trigger": {"start_s": TRIGGER[0], "end_s": TRIGGER[1]},
        "hardware": {"model": "Llama-3.1-8B bf16", "gpu": "H100", "gpus_per_replica": 1, "max_num_seqs": 256},
        "traffic": {"family": "azure-conv"},
        "serving": {"abort_on_disconnect": case.aborts, "max_waiting": case.max_waiting},
        "clients": {"timeout_s": 10, "stream": True, "retries": 2},
        "timeline": [
            {"at_s": TRIGGER[0], "kind": "slow", "g": 2.0},
            {"at_s": TRIGGER[1], "kind": "recover"},
        ],
    }
    return parse_scenario(document, "benchmarks.metastable")


def play(case: Case, seed: int, late: tuple[float, float] = LATE) -> Fate:
    """Nobody at the levers but for the case's own limits. `late`: another last window, in which the run ends."""
    world = World(scenario(case, late[1]), seed=seed)
    if case.retry_budget is not None:
        world.controls.set_limit(ACTOR, "retry_budget", case.retry_budget, "from the start")
    world.run_until(late[0])
    before = world.observe().gateway
    world.run_until(late[1])
    after = world.observe().gateway
    assert before is not None and after is not None  # its telemetry is well
    first = after.first_attempts - before.first_attempts
    let_in = (after.requests - after.shed) - (before.requests - before.shed)
    calls = world.finish("none").calls
    return Fate(
        during=goodput(calls, TRIGGER),
        after=goodput(calls, AFTER),
        late=goodput(calls, late),
        attempts=let_in / first if first else None,
    )


def goodput(calls: Sequence[CallRecord], window: tuple[float, float]) -> float | None:
    """Answers that came in the window over calls that began in it."""
    start, end = window
    begun = sum(start <= call.t < end for call in calls)
    answers = sum(call.outcome == "ok" and call.ended_at is not None and start <= call.ended_at < end for call in calls)
    return answers / begun if begun else None


def document(results: Sequence[tuple[Case, Fate]], seed: int) -> dict[str, Any]:
    rows = [
        {"load": case.load, "policy": case.title, "measured": asdict(fate), "published": asdict(PUBLISHED[case])}
        for case, fate in results
    ]
    return {"schema_version": 1, "seed": seed, "rows": rows}


def table(results: Sequence[tuple[Case, Fate]], seed: int) -> Table:
    """Measured here | published, side by side."""
    found = Table(title=f"Goodput over first attempts, measured here (seed {seed}) | published", box=None)
    for name in ("load", "what is done", "during", "+2 min after", "8-13 min after", "attempts at the end"):
        found.add_column(name, justify="left" if name == "what is done" else "right")
    for case, fate in results:
        told = PUBLISHED[case]
        pairs = ((fate.during, told.during), (fate.after, told.after), (fate.late, told.late))
        cells = [f"{_number(here, 2)} | {_number(there, 2)}" for here, there in pairs]
        cells.append(f"{_number(fate.attempts, 1)} | {_number(told.attempts, 1)}")
        found.add_row(f"{case.load:.0%}", case.title, *cells)
    return found


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metastable", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    results = []
    for case in PUBLISHED:
        results.append((case, play(case, options.seed)))
        print(f"done: load {case.load:.0%}, {case.title}", file=sys.stderr, flush=True)
    if options.output == "json":
        print(json.dumps(document(results, options.seed)))
    else:
        Console(width=140).print(table(results, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
