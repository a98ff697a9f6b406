"""Hand-made runs for the tests of the arena."""

from dataclasses import replace

from benchmarks.arena.jobs import Job
from benchmarks.arena.store import Played
from fleetsim.score import Score

EMPTY = Score(
    offered=1000,
    answered=900,
    unfinished=0,
    slo_met=900,
    slo_attainment=0.9,
    cost_usd=30.0,
    gpu_hours=10.0,
    success_per_dollar=30.0,
    goodput_ratio_before_trigger=1.0,
    goodput_ratio_during_fault=0.9,
    goodput_ratio_after_trigger=0.95,
    recovery_s=10.0,
    ttft_p50_s=0.2,
    ttft_p95_s=1.0,
    itl_p95_s=0.05,
    tasks_succeeded=None,
    attempts_per_call=1.1,
    wasted_tokens=0.05,
    actions=3,
    reversals=1,
    wrong_actions=0,
    right_done=1,
    right_asked=2,
)


def figures(**changes: float | None) -> Score:
    return replace(EMPTY, **changes)  # type: ignore[arg-type]


def played(
    scenario: str, policy: str, seed: int = 1, g: float = 1.0, plan: int | None = None, **changes: float | None
) -> Played:
    name = None if plan is None else f"plan {plan}"
    return Played(Job(scenario, policy, seed, g, plan), figures(**changes), (1.0, None, 0.5), name, wall_s=1.0)
