"""`inferostat simulate`: a scenario in virtual time, with the agent or a peer's policy at the levers, and its score."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fleetsim.policies.registry import POLICIES, PolicyError
from fleetsim.scenario import Scenario, ScenarioError, load_scenario, names, parse_scenario
from fleetsim.score import score
from fleetsim.traffic.reader import open_trace
from fleetsim.traffic.rows import TraceError
from fleetsim.virtual.play import play as play_peer
from fleetsim.virtual.result import Run
from inferostat.cli.duration import seconds
from inferostat.cli.output import Format, Output, emit, fail, table, told
from inferostat.virtual import POLICY, play

ORACLE = "oracle"
_OURS = {"name": POLICY, "title": "this agent, unchanged, in mode act", "citation": "docs/architecture.md"}


def simulate(
    scenario: Annotated[str | None, typer.Option(help="A packaged scenario or a file.")] = None,
    policy: Annotated[str, typer.Option(help="Who moves the levers: this agent or a peer's policy.")] = POLICY,
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's.")] = None,
    load: Annotated[float | None, typer.Option(help="Offered load as a share of measured capacity.")] = None,
    duration: Annotated[str | None, typer.Option(help="Such as 5m, instead of the scenario's.")] = None,
    trace: Annotated[Path | None, typer.Option(help="First attempts out of a trace file; docs/traffic.md.")] = None,
    g: Annotated[float, typer.Option(help="Factor on all of the engines' times: an error of the model.")] = 1.0,
    listing: Annotated[bool, typer.Option("--list", help="Name the scenarios and the policies.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Play a scenario in virtual time: no processes, no waiting, the same figures for the same seed."""
    try:
        if listing:
            _list(output)
            return
        if scenario is None:
            raise fail(f"--scenario: expected one of {', '.join(names())} or a file, found none: name one, see --list")
        chosen = _with_trace(load_scenario(scenario), trace)
        _check_policy(policy, scenario)
        run = _play(
            chosen,
            policy,
            seed=seed,
            load=None if load is None else _positive("--load", load),
            duration_s=None if duration is None else _duration(duration),
            g=_positive("--g", g),
        )
    except (PolicyError, ScenarioError, TraceError) as error:
        raise fail(str(error)) from error
    document = _document(run, g)
    emit(document, output, [_figures(document), _timeline(document)])


def _list(output: Format) -> None:
    scenarios = [{"name": name, "about": load_scenario(name).about} for name in names()]
    peers = [{"name": one.name, "title": one.title, "citation": one.citation} for one in POLICIES.values()]
    policies = [_OURS, *peers]
    shown = table("Scenarios", "name", "about")
    for item in scenarios:
        shown.add_row(item["name"], item["about"])
    known = table("Policies", "name", "decides by", "after")
    for item in policies:
        known.add_row(item["name"], item["title"], item["citation"])
    emit({"scenarios": scenarios, "policies": policies}, output, [shown, known])


def _with_trace(scenario: Scenario, trace: Path | None) -> Scenario:
    """The scenario with its first attempts out of a file instead. TraceError, ScenarioError if the two do not fit."""
    if trace is None:
        return scenario
    open_trace(trace)  # a file that is no trace is told of before anything is played
    document = scenario.model_dump() | {"traffic": {"trace": trace}}
    return parse_scenario(document, f"{scenario.name} with {trace}")


def _check_policy(policy: str, scenario: str) -> None:
    if policy == ORACLE:
        raise fail(
            "--policy: expected a policy that decides as it goes, found oracle, whose plan is the best of a search over"
            f" whole runs: `python -m benchmarks.arena --scenarios {scenario} --policies oracle` does that"
        )
    if policy != POLICY and policy not in POLICIES:
        raise fail(f"--policy: expected one of {', '.join((POLICY, *POLICIES))}, found {policy!r}: correct the name")


def _positive(option: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise fail(f"{option}: expected a number above 0, found {value:g}: correct it")
    return value


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise fail(f"--duration: {error}: correct it") from error


def _play(
    scenario: Scenario, policy: str, *, seed: int | None, load: float | None, duration_s: float | None, g: float
) -> Run:
    with told.status(f"{scenario.name} with {policy}"):
        if policy == POLICY:
            return play(scenario, seed=seed, load=load, duration_s=duration_s, g=g)
        return play_peer(scenario, policy, seed=seed, load=load, duration_s=duration_s, g=g)


def _document(run: Run, g: float) -> dict[str, Any]:
    """Nothing in it depends on when or where it was played: the same seed gives the same bytes."""
    return {
        "scenario": run.scenario.name,
        "policy": run.policy,
        "seed": run.seed,
        "load": run.load,
        "duration_s": run.duration_s,
        "g": g,
        "capacity_rps": run.capacity_rps,
        **asdict(score(run)),
        "timeline": [asdict(entry) for entry in run.timeline],
    }


def _figures(document: dict[str, Any]) -> Table:
    title = f"{document['scenario']} with {document['policy']}, seed {document['seed']}, load {document['load']:g}"
    shown = table(title, "what", "value")
    for key, value in document.items():
        if not isinstance(value, list):
            shown.add_row(key, f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value))
    return shown


def _timeline(document: dict[str, Any]) -> Table:
    shown = table("Timeline", "t", "kind", "lever", "target", "state", "reason")
    for entry in document["timeline"]:
        columns = (str(entry[name] or "") for name in ("kind", "lever", "target", "state", "reason"))
        shown.add_row(f"{entry['t']:.1f}", *columns)
    return shown
