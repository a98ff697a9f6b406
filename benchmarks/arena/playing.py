"""Play one job in this process: a fresh world, its policy, the score. What fails is told, not raised."""

from __future__ import annotations

import time
import traceback

from benchmarks.arena.jobs import AGENT, ORACLE, Job
from benchmarks.arena.store import Played
from fleetsim.outcomes import Attempted, ratio
from fleetsim.policies.oracle import Oracle, plans
from fleetsim.scenario import load_scenario
from fleetsim.score import patience, score
from fleetsim.virtual.play import play
from fleetsim.virtual.result import Run
from inferostat.virtual import play as play_agent

CURVE_STEP_S = 20.0


def play_job(job: Job) -> Played:
    """The job's figures, or how it failed."""
    started = time.perf_counter()
    try:
        run, plan = _run(job)
        return Played(job, score(run), curve(run), plan, wall_s=time.perf_counter() - started)
    except Exception as error:  # the arena goes on without this run, and its report names it
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return Played(job, None, error=told, wall_s=time.perf_counter() - started)


def _run(job: Job) -> tuple[Run, str | None]:
    scenario = load_scenario(job.scenario)
    if job.policy == AGENT:
        return play_agent(scenario, seed=job.seed, duration_s=job.duration_s, g=job.g), None
    if job.policy == ORACLE:
        assert job.plan is not None  # an oracle without a plan is no job
        plan = plans(scenario)[job.plan]
        return play(scenario, Oracle(plan), seed=job.seed, duration_s=job.duration_s, g=job.g), plan.name
    return play(scenario, job.policy, seed=job.seed, duration_s=job.duration_s, g=job.g), None


def curve(run: Run) -> tuple[float | None, ...]:
    """Goodput ratio of the calls that arrived in each step, up to one patience of the clients before the end."""
    requests = sorted((Attempted(c.t, c.outcome == "ok") for c in run.calls), key=lambda a: a.t)
    steps = int(max(0.0, run.duration_s - patience(run.scenario)) // CURVE_STEP_S)
    found = (ratio(requests, k * CURVE_STEP_S, (k + 1) * CURVE_STEP_S) for k in range(steps))
    return tuple(None if value is None else round(value, 3) for value in found)
