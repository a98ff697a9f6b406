"""docs/scenarios.md, made from the scenario library: `python -m fleetsim.library_table docs/scenarios.md`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetsim.scenario import Scenario, library, load_scenario
from fleetsim.truth import Move

HEAD = """\
# Scenario library

Generated from `fleetsim/library` by `python -m fleetsim.library_table`; do not edit.

Twenty minutes each in virtual time, of requests at `load` times what the fleet can finish at saturation. `trigger` is
when the cause acts, in seconds from the start: *before*, *during* and *after* (from 60 s past its end) in every report
refer to it. The truth is known to the score only. A *wrong* move is one that hurts whatever else a controller does,
or acts on what is not known; each says why. *Right* moves are told and count for nothing: the score sees what they
bring. Each file says at its top what it plays and where such a thing has been seen.

Unless the story says otherwise: eight replicas of Llama-3.1-70B on four H100 each, at most twelve, at least what the
ordinary load needs at 90 % (two where scaling down is part of the question), a cold start of 142 s in the median, chat
traffic with the lengths of Azure's public trace, streaming clients that wait 10 s for the first token and retry twice.
"""


def document(scenarios: Sequence[Scenario]) -> str:
    """The whole page: a table of all, then the moves of each."""
    rows = ["| scenario | load | trigger s | what happens | cause | findings |", "|---|---|---|---|---|---|"]
    rows += [_row(scenario) for scenario in scenarios]
    return "\n".join([HEAD, *rows, "", *(_section(scenario) for scenario in scenarios)])


def _row(scenario: Scenario) -> str:
    truth, trigger = scenario.truth, scenario.trigger
    cause = f"{truth.layer}: {_names(truth.where)}" if truth.layer else "none"
    return (
        f"| [{scenario.name}](#{scenario.name}) | {scenario.load:g} | {trigger.start_s:g} to {trigger.end_s:g} "
        f"| {scenario.about} | {cause} | {', '.join(truth.findings) or 'none'} |"
    )


def _section(scenario: Scenario) -> str:
    truth = scenario.truth
    lines = [f"## {scenario.name}", "", truth.what, ""]
    lines += [f"- right: {_move(move)}" for move in truth.right]
    lines += [f"- wrong: {_move(move)}" for move in truth.wrong]
    if truth.not_findings:
        lines.append(f"- must not be found: {', '.join(truth.not_findings)}")
    return "\n".join([*lines, ""])


def _move(move: Move) -> str:
    direction = "" if move.direction == "any" else f" {move.direction}"
    targets = "" if move.targets == "all" else f" of {_names(move.targets)}"
    return f"{move.lever}{direction}{targets}{_window(move)}: {move.why}."


def _window(move: Move) -> str:
    if move.until_s is not None:
        return f", {move.from_s:g} to {move.until_s:g} s"
    return f", from {move.from_s:g} s" if move.from_s else ""


def _names(names: Sequence[str]) -> str:
    """Names in order, runs of numbered ones as "engine-0 to engine-7"."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _follows(name: str, other: str) -> bool:
    stem, _, number = name.rpartition("-")
    return number.isdigit() and other == f"{stem}-{int(number) + 1}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document([load_scenario(name) for name in library()]))
