"""Which of the oracle's plans is best: the upper bound that the policies are held against. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from benchmarks.arena.jobs import ORACLE
from benchmarks.arena.store import Played
from fleetsim.score import Score

NEAR = 0.02  # of the best attainment


def chosen_plans(played: Iterable[Played]) -> dict[str, int]:
    """The best plan of each scenario by the runs of its search; a scenario all of whose plans failed has none.

    The search is on the first seed: what the chosen plan came to on others does not count, or it would be compared with
    plans that had another seed's luck.
    """
    runs = [one for one in played if one.job.policy == ORACLE and one.job.g == 1.0]
    first = min((one.job.seed for one in runs), default=0)
    searched: dict[str, dict[int, Score]] = defaultdict(dict)
    for one in runs:
        if one.job.seed == first and one.job.plan is not None and one.score is not None:
            searched[one.job.scenario][one.job.plan] = one.score
    return {scenario: best(scores) for scenario, scores in searched.items()}


def best(scores: dict[int, Score]) -> int:
    """Most answers within the objective per dollar, among plans whose attainment is within 2 % of the best one's.

    Per dollar alone would choose to starve: a pool at its limit is cheap, and fails its callers.
    """
    top = max(score.slo_attainment or 0.0 for score in scores.values())
    near = {plan: s for plan, s in scores.items() if (s.slo_attainment or 0.0) >= top * (1 - NEAR)}
    return max(near, key=lambda plan: (near[plan].success_per_dollar or 0.0, -plan))
