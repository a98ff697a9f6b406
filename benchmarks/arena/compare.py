"""Who is ahead of whom, by how much, and whether that outlives an error of the engine model. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean

from benchmarks.arena.choice import chosen_plans
from benchmarks.arena.jobs import AGENT, ORACLE
from benchmarks.arena.store import Played
from fleetsim.score import Score


class Verdict(Enum):
    WINS = "+"
    LEVEL = "="
    LOSES = "-"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that policies are compared by; a difference up to `tolerance` (`relative`: a share) is none.

    `missing`: what None stands for, where it says something (a pool that never recovered).
    `fair`: compared only with peers that serve about as many within the objective.
    """

    name: str
    title: str
    higher: bool
    tolerance: float
    relative: bool = False
    missing: float | None = None
    fair: bool = False
    percent: bool = False

    def of(self, score: Score) -> float | None:
        value: float | None = getattr(score, self.name)
        return self.missing if value is None else float(value)


SERVED = Metric("slo_attainment", "served within the objective", True, 0.005, percent=True)
METRICS = (
    SERVED,
    Metric("success_per_dollar", "successes per dollar", True, 0.02, relative=True, fair=True),
    Metric("goodput_ratio_after_trigger", "goodput after the trigger", True, 0.01, percent=True),
    Metric("recovery_s", "recovery, s", False, 15.0, missing=math.inf),
)
FAIR = 0.02  # success per dollar says nothing of a peer that serves fewer than that much less than we do


@dataclass(frozen=True, slots=True)
class Conclusion:
    """inferostat against one peer in one scenario. `survives` is None where no other g was played."""

    scenario: str
    peer: str
    metric: Metric
    ours: float
    theirs: float
    verdict: Verdict
    survives: bool | None


class Table:
    """Scores by scenario, policy and g, in order of seeds. Of the oracle only the chosen plan is in it."""

    def __init__(self, played: Iterable[Played]) -> None:
        runs = [one for one in played if one.score is not None]
        self.plans = chosen_plans(runs)
        self._scores: dict[tuple[str, str, float], dict[int, Played]] = defaultdict(dict)
        for one in runs:
            job = one.job
            if job.policy != ORACLE or job.plan == self.plans.get(job.scenario):
                self._scores[job.scenario, job.policy, job.g][job.seed] = one
        self.scenarios = sorted({scenario for scenario, _, _ in self._scores})
        self.policies = sorted({policy for _, policy, _ in self._scores}, key=_order)
        self.gs = sorted({g for _, _, g in self._scores if g != 1.0})

    def scores(self, scenario: str, policy: str, g: float = 1.0) -> list[Score]:
        runs = self.runs(scenario, policy, g)
        return [one.score for one in runs if one.score is not None]

    def runs(self, scenario: str, policy: str, g: float = 1.0) -> list[Played]:
        by_seed = self._scores.get((scenario, policy, g), {})
        return [by_seed[seed] for seed in sorted(by_seed)]

    def mean(self, scenario: str, policy: str, metric: Metric, g: float = 1.0) -> float | None:
        """Over the seeds; None if one of them has no such figure."""
        values = [metric.of(score) for score in self.scores(scenario, policy, g)]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    @property
    def peers(self) -> list[str]:
        return [policy for policy in self.policies if policy not in (AGENT, ORACLE)]


def _order(policy: str) -> tuple[int, str]:
    """Ours first, the upper bound last."""
    return (0 if policy == AGENT else 2 if policy == ORACLE else 1, policy)


def verdict(metric: Metric, ours: float, theirs: float) -> Verdict:
    """How `ours` compares with `theirs`."""
    if ours == theirs:
        return Verdict.LEVEL
    margin = metric.tolerance * abs(theirs) if metric.relative and math.isfinite(theirs) else metric.tolerance
    if abs(ours - theirs) <= margin:
        return Verdict.LEVEL
    return Verdict.WINS if (ours > theirs) == metric.higher else Verdict.LOSES


def conclude(table: Table, scenario: str, peer: str, metric: Metric) -> Conclusion | None:
    """What the runs say of one peer; None where a figure is missing or the comparison would not be fair."""
    found = _verdict(table, scenario, peer, metric, 1.0)
    if found is None:
        return None
    ours, theirs, word = found
    others = [_verdict(table, scenario, peer, metric, g) for g in table.gs]
    survives = all(other is not None and other[2] is word for other in others) if others else None
    return Conclusion(scenario, peer, metric, ours, theirs, word, survives)


def _verdict(table: Table, scenario: str, peer: str, metric: Metric, g: float) -> tuple[float, float, Verdict] | None:
    ours, theirs = (table.mean(scenario, policy, metric, g) for policy in (AGENT, peer))
    if ours is None or theirs is None:
        return None
    if metric.fair:
        served, by_peer = (table.mean(scenario, policy, SERVED, g) for policy in (AGENT, peer))
        if served is None or by_peer is None or by_peer < served * (1 - FAIR):
            return None
    return ours, theirs, verdict(metric, ours, theirs)


def losses(table: Table, metrics: Sequence[Metric] = METRICS) -> Iterator[tuple[Conclusion, int]]:
    """Where a peer is ahead: the one that is furthest, and how many peers are; one entry a scenario and metric."""
    for scenario in table.scenarios:
        for metric in metrics:
            found = [conclude(table, scenario, peer, metric) for peer in table.peers]
            ahead = [one for one in found if one is not None and one.verdict is Verdict.LOSES]
            if ahead:
                key = max if metric.higher else min
                yield key(ahead, key=lambda one: one.theirs), len(ahead)
