"""The bound for all policies: a static plan made by one who knows the scenario, carried out at its times.

`plans` offers a handful; which of them is best is found by running them all. A plan knows when replicas will be
needed and asks for them a cold start earlier, knows which endpoints will be at fault and takes them out meanwhile,
and may keep a queue from forming. It looks at nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fleetsim.policies.demand import Loss, Work, losses
from fleetsim.policies.policy import Untouched
from fleetsim.scenario import Scenario
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import Observation

GRID_S = 15.0  # how finely a plan follows the load
HOLD_S = 60.0  # a plan keeps replicas for so long after they were needed
QUEUE_SHARE = 0.25  # of the requests that can run: what a breaker lets wait beside them


@dataclass(frozen=True, slots=True)
class Step:
    """One write at `t` seconds. `target`: an endpoint, for weights; else the pool."""

    t: float
    lever: str  # scale, weight, breaker, admission, retry_budget
    value: float | None
    target: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` in order of time."""

    name: str
    steps: tuple[Step, ...] = ()


class Oracle(Untouched):
    name = "oracle"
    period_s = 1.0

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._done = 0

    def decide(self, seen: Observation, controls: Controls) -> None:
        while self._done < len(self.plan.steps) and self.plan.steps[self._done].t <= seen.now:
            self._write(self.plan.steps[self._done], controls)
            self._done += 1

    def _write(self, step: Step, controls: Controls) -> None:
        why = f"plan {self.plan.name}"
        if step.lever == "scale" and step.value is not None:
            controls.scale(self.name, int(step.value), why)
        elif step.lever != "weight":
            controls.set_limit(self.name, step.lever, step.value, why)
        elif step.value is not None and controls.weight(step.target) is not None:
            controls.set_weight(self.name, step.target, step.value, why)


def plans(scenario: Scenario) -> list[Plan]:
    """At most 16 candidates, without doubles: replica counts by how busy those that serve may be, with endpoints at
    fault taken out, each with and without limits; and admission during the trigger."""
    out = _faulty_out(scenario)
    counts = {
        "hold": ((0.0, scenario.engines),),
        "full": needed(scenario, 0.95),
        "usual": needed(scenario, 0.85),
        "ample": needed(scenario, 0.7),
        "most": needed(scenario, 0.5),
    }
    found = [Plan("hold, touch nothing")]
    for name, schedule in counts.items():
        scale = tuple(Step(t, "scale", n) for t, n in schedule if (t, n) != (0.0, scenario.engines))
        breaker = _breakers(scenario, schedule)
        found.append(_plan(name, scale, out))
        found.append(_plan(f"{name}, breaker", scale, out, breaker))
        if name != "most":
            found.append(_plan(f"{name}, breaker, no retries", scale, out, breaker, (Step(0.0, "retry_budget", 0.0),)))
    found.append(_plan("hold, admission", out, _admission(scenario)))
    kept: dict[tuple[Step, ...], Plan] = {}
    for plan in found:
        kept.setdefault(plan.steps, plan)
    return list(kept.values())


def needed(scenario: Scenario, utilisation: float) -> tuple[tuple[float, int], ...]:
    """(time, replicas) such that those that serve are at most so busy, asked for a cold start ahead, held a minute.

    Work is first attempts times prompt length, in shares of what the scenario's engines can do.
    """
    lead, end, work = lead_s(scenario), scenario.duration_s, Work(scenario)
    lost = losses(scenario)
    if _faulty_out(scenario):
        lost = tuple(replace(loss, share=1.0) if loss.endpoint else loss for loss in lost)
    schedule: list[tuple[float, int]] = []
    for index in range(math.ceil(end / GRID_S)):
        t = index * GRID_S
        ahead = [t - HOLD_S + GRID_S * i for i in range(math.floor((lead + HOLD_S) / GRID_S) + 4)]
        busy = max(work.at(s) / utilisation * scenario.engines + _missing(lost, s) for s in ahead if 0 <= s <= end)
        most = math.ceil(busy - 1e-9)
        replicas = max(scenario.min_replicas, min(most, scenario.max_replicas))
        if not schedule or schedule[-1][1] != replicas:
            schedule.append((t, replicas))
    return tuple(schedule)


def lead_s(scenario: Scenario) -> float:
    """How early to ask: a slow one of the cold starts (two sigma)."""
    return scenario.cold_start_s * math.exp(2 * scenario.cluster.cold_start_sigma)


def _breakers(scenario: Scenario, schedule: tuple[tuple[float, int], ...]) -> tuple[Step, ...]:
    """As many in flight as the replicas run at once, and a short queue. Lower at once, higher when they serve."""
    each = scenario.hardware.profile.max_num_seqs * (1 + QUEUE_SHARE)
    before = scenario.engines
    steps = [Step(0.0, "breaker", float(math.ceil(min(before, schedule[0][1]) * each)))]
    for t, replicas in schedule:
        if replicas > before:
            steps.append(Step(t + scenario.cold_start_s, "breaker", float(math.ceil(replicas * each))))
        elif replicas < before and t > 0:
            # What was to be raised after this is not: those replicas go before they serve.
            steps = [s for s in steps if s.t < t] + [Step(t, "breaker", float(math.ceil(replicas * each)))]
        before = replicas
    return tuple(steps)


def _admission(scenario: Scenario) -> tuple[Step, ...]:
    """During the trigger only what the engines left can do is let in; nothing, if they can do it all."""
    start, end = scenario.trigger.start_s, scenario.trigger.end_s
    middle = (start + end) / 2
    left = scenario.engines - _missing(losses(scenario), middle)
    asked = scenario.engines * Work(scenario).at(middle)
    percent = math.floor(95 * left / asked) if asked else 100
    if percent >= 100:
        return ()
    return (Step(start, "admission", float(max(percent, 5))), Step(end + HOLD_S, "admission", None))


def _faulty_out(scenario: Scenario) -> tuple[Step, ...]:
    """Endpoints at fault are out from fault to end, unless they are more than half of the pool."""
    named = [loss for loss in losses(scenario) if loss.endpoint]
    if len({loss.endpoint for loss in named}) > scenario.engines / 2:
        return ()
    steps = [Step(loss.start, "weight", 0.0, loss.endpoint) for loss in named]
    steps += [Step(loss.end, "weight", 100.0, loss.endpoint) for loss in named if loss.end < scenario.duration_s]
    return tuple(steps)


def _missing(lost: tuple[Loss, ...], t: float) -> float:
    return sum(loss.share for loss in lost if loss.start <= t < loss.end)


def _plan(name: str, *parts: tuple[Step, ...]) -> Plan:
    return Plan(name, tuple(sorted((s for part in parts for s in part), key=lambda s: s.t)))
