"""The arena's results as Markdown: first where inferostat loses. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.arena.compare import METRICS, SERVED, Conclusion, Metric, Table, Verdict, conclude, losses
from benchmarks.arena.jobs import AGENT, ORACLE
from benchmarks.arena.store import Played
from fleetsim.score import Score

Figure = Callable[[Score], float | None]


@dataclass(frozen=True, slots=True)
class Header:
    """How the figures came about. `wall_s` is of this call, `resumed` the runs it found finished; `runs_s`: what all
    runs took, one after the other.
    """

    command: str
    commit: str
    date: str
    seeds: tuple[int, ...]
    machine: str
    wall_s: float
    resumed: int
    runs_s: float


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    of: Figure
    digits: int = 0
    scale: float = 1.0
    never: bool = False  # a missing figure says "never"


COLUMNS = (
    Column("served %", lambda s: s.slo_attainment, 1, 100),
    Column("per $", lambda s: s.success_per_dollar),
    Column("before %", lambda s: s.goodput_ratio_before_trigger, 0, 100),
    Column("during %", lambda s: s.goodput_ratio_during_fault, 0, 100),
    Column("after %", lambda s: s.goodput_ratio_after_trigger, 0, 100),
    Column("recovery s", lambda s: s.recovery_s, never=True),
    Column("TTFT p95 s", lambda s: s.ttft_p95_s, 2),
    Column("ITL p95 ms", lambda s: s.itl_p95_s, 0, 1000),
    Column("tasks %", lambda s: s.tasks_succeeded, 0, 100),
    Column("GPU-h", lambda s: s.gpu_hours, 1),
    Column("attempts", lambda s: s.attempts_per_call, 2),
    Column("wasted %", lambda s: s.wasted_tokens, 0, 100),
    Column("actions", lambda s: s.actions),
    Column("reversals", lambda s: s.reversals),
    Column("wrong", lambda s: s.wrong_actions),
    Column("right", lambda s: s.right_done / s.right_asked if s.right_asked else None, 0, 100),
)

EXPLAINED = """\
Served: share of all calls answered in full before their client gave up, first token and pace within the objective.
Per $: calls served per dollar of allocated GPUs. Before, during, after: share of the calls that arrived then (after:
from 60 s past the trigger's end) that were answered at all before their client gave up. Recovery: from the trigger's
end to the first 30 s of at least 90 %. Attempts: a call, with the clients' retries. Wasted: share of the generated
tokens that are in no answer. Reversals: moves taken back within five minutes. Wrong: moves that the scenario's truth
calls wrong; right: share of the kinds of moves it calls right that were made. Each is the mean over the seeds, with
(least–most) where the seeds differ. The oracle knows the scenario: the best of its plans by calls served per dollar,
among those within 2 % of the most it can serve."""


def report(table: Table, header: Header, failed: Sequence[Played]) -> str:
    """The whole document."""
    parts = [_head(table, header), _losses(table), _against(table), _overall(table)]
    parts += [_failures(failed)] if failed else []
    parts += ["## Scenario by scenario\n\n" + EXPLAINED]
    parts += [_scenario(table, scenario) for scenario in table.scenarios]
    return "\n\n".join(parts) + "\n"


def grid(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _head(table: Table, header: Header) -> str:
    g = ", ".join(f"{value:g}" for value in table.gs)
    seeds = ", ".join(map(str, header.seeds))
    minutes = header.wall_s / 60
    return (
        "# The arena: policies on the same traffic\n\n"
        f"Written by `{header.command}` on {header.date} with commit {header.commit}; {header.machine}; "
        f"{minutes:.1f} minutes, {header.resumed} runs found finished; "
        f"all runs together took {header.runs_s / 3600:.1f} hours of one core. "
        f"{len(table.scenarios)} scenarios, {len(table.policies)} policies, seeds {seeds}; simulated, in virtual time."
        "\n\n"
        + (
            f"The engines' model has errors of its own: a conclusion with * does not survive when the engines take {g} "
            f"times as long with the load at the same share of their capacity (seed {header.seeds[0]})."
            if g
            else "Not played with engines faster or slower than modelled: conclusions may depend on the model's error."
        )
    )


def _losses(table: Table) -> str:
    rows = [_loss(found, ahead) for found, ahead in losses(table)] if AGENT in table.policies else []
    titles = ("scenario", "by", "inferostat", "best peer", "its figure", "behind by", "peers ahead")
    if AGENT not in table.policies:
        body = "inferostat did not play."
    elif rows:
        body = grid(titles, rows)
    else:
        body = "Nowhere, by the four figures below."
    fine = "; ".join(f"{m.title}: {_tolerance(m)}" for m in METRICS)
    return (
        f"## Where inferostat loses to a peer\n\n{body}\n\n"
        f"Differences up to these count as none: {fine}. Successes per dollar are compared only with peers that serve "
        "at least 98 % of what inferostat serves."
    )


def _tolerance(metric: Metric) -> str:
    if metric.relative:
        return f"{metric.tolerance:.0%}"
    return f"{metric.tolerance * 100:g} points" if metric.percent else f"{metric.tolerance:g}"


def _loss(found: Conclusion, ahead: int) -> tuple[str, ...]:
    metric = found.metric
    if math.isinf(found.ours):
        behind = "never"
    elif metric.relative:
        behind = f"{abs(found.theirs - found.ours) / abs(found.theirs):.1%}"
    else:
        behind = _figure(metric, abs(found.theirs - found.ours))
    star = "*" if found.survives is False else ""
    return (
        found.scenario,
        metric.title,
        _figure(metric, found.ours),
        found.peer,
        _figure(metric, found.theirs),
        behind + star,
        str(ahead),
    )


def _figure(metric: Metric, value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value * 100:.1f} %" if metric.percent else f"{value:.0f}"


def _against(table: Table) -> str:
    def cell(scenario: str, peer: str) -> str:
        found = conclude(table, scenario, peer, SERVED)
        return "" if found is None else found.verdict.value + ("*" if found.survives is False else "")

    rows = ([scenario, *(cell(scenario, peer) for peer in table.peers)] for scenario in table.scenarios)
    return (
        "## inferostat against each peer\n\n"
        f"By the share of calls {SERVED.title}: + ahead, = within {_tolerance(SERVED)}, - behind.\n\n"
        + grid(("scenario", *table.peers), rows)
    )


def _overall(table: Table) -> str:
    """Over all scenarios, each counting the same whatever its length."""
    rows = []
    for policy in table.policies:
        scores = [score for scenario in table.scenarios for score in table.scores(scenario, policy)]
        served = [s.slo_attainment for s in scores if s.slo_attainment is not None]
        cost = sum(s.cost_usd for s in scores)
        lost = [conclude(table, scenario, policy, SERVED) for scenario in table.scenarios]
        verdicts = [one.verdict for one in lost if one is not None and policy not in (AGENT, ORACLE)]
        rows.append(
            (
                policy,
                str(len(scores)),
                f"{fmean(served) * 100:.1f}" if served else "-",
                f"{min(served) * 100:.1f}" if served else "-",
                f"{sum(s.slo_met for s in scores) / cost:.0f}" if cost > 0 else "-",
                str(sum(s.recovery_s is None for s in scores)),
                str(sum(s.actions for s in scores)),
                str(sum(s.reversals for s in scores)),
                str(sum(s.wrong_actions for s in scores)),
                "/".join(str(verdicts.count(word)) for word in Verdict) if verdicts else "-",
            )
        )
    titles = (
        "policy",
        "runs",
        "served, mean %",
        "worst run %",
        "served per $",
        "never recovered",
        "actions",
        "reversals",
        "wrong",
        "inferostat +/=/-",
    )
    return "## Over all scenarios\n\n" + grid(titles, rows)


def _failures(failed: Sequence[Played]) -> str:
    lines = [f"- {one.job.key}: {one.error}" for one in failed]
    return "## Runs that failed\n\n" + "\n".join(lines)


def _scenario(table: Table, scenario: str) -> str:
    columns = [
        c for c in COLUMNS if any(c.of(s) is not None for p in table.policies for s in table.scores(scenario, p))
    ]
    rows = []
    for policy in table.policies:
        scores = table.scores(scenario, policy)
        if scores:
            plan = table.runs(scenario, policy)[0].plan
            name = policy if plan is None else f"{policy} ({plan})"
            rows.append([name, *(cell(column, scores) for column in columns)])
    return f"### {scenario}\n\n" + grid(("policy", *(c.title for c in columns)), rows)


def cell(column: Column, scores: Sequence[Score]) -> str:
    """Mean and range over the seeds; what is missing is said, not averaged away."""
    values = [column.of(score) for score in scores]
    known = [value * column.scale for value in values if value is not None]
    missing = len(values) - len(known)
    if missing:
        word = "never" if column.never else "-"
        return word if not known else f"{word} in {missing} of {len(values)}"
    mean, low, high = (f"{value:.{column.digits}f}" for value in (fmean(known), min(known), max(known)))
    return mean if low == high else f"{mean} ({low}–{high})"
