"""Replicas: scale on offered load and on queues, count what is coming, go down slowly and only on full knowledge."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from actuators.model import Direction, Expectation, Lever
from inferostat.planner.model import Precedence, Proposal
from inferostat.planner.situation import READY_REPLICAS, Situation
from inferostat.planner.state import PlannerState

PRESSURE = ("saturated", "queue-growing", "latency-regression", "demand-surge")
STORM = ("retry-storm-incipient", "retry-storm", "retry-storm-collapsed")
HOLDS_DOWN = (*PRESSURE, *STORM, "kv-pressure", "telemetry-outage")
FROZEN = ("engine-hung", "gauges-stale", "engine-down")


@dataclass(frozen=True)
class Want:
    """Replicas one rule asks for, with its sentence."""

    replicas: float
    reason: str
    evidence: tuple[str, ...] = ()


def propose(situation: Situation, state: PlannerState) -> tuple[list[Proposal], PlannerState]:
    reading = situation.reading(Lever.SCALE)
    if not reading.known or reading.value is None or reading.ready is None:
        return [], state
    current, ready = reading.value, reading.ready
    wants = [*_by_load(situation, current), *_by_pressure(situation, current, ready)]
    wanted = max((want.replicas for want in wants), default=None)
    history = _remember(situation, state, wanted)
    state = replace(state, wanted={**state.wanted, situation.pool: history})
    if wanted is None:
        return [], state
    if wanted > current:
        best = max(wants, key=lambda want: want.replicas)
        held_for = _asked_above(history, current, situation.now)
        if held_for < situation.policy.scaling.up_stabilisation_s:
            return [], state
        return [_up(situation, current, best)], state
    if wanted < current:
        return _down(situation, current, ready, history), state
    return [], state


def _by_load(situation: Situation, current: float) -> list[Want]:
    """Offered (not admitted) load over learnt capacity, and in-flight requests over the user's target."""
    scaling = situation.policy.scaling
    wants: list[Want] = []
    offered, per_replica = situation.measure("offered_rate"), situation.measure("capacity_per_endpoint")
    if offered is not None and per_replica:
        ratio = offered / (per_replica * scaling.utilisation * current)
        wants.append(
            _tolerated(
                scaling.tolerance,
                ratio,
                current,
                f"offered {offered:.1f}/s over {per_replica:.1f}/s a replica at {scaling.utilisation:.0%}",
            )
        )
    target = scaling.inflight_per_replica
    inflight = situation.measure("inflight_total")
    if target is not None and inflight is not None:
        wants.append(
            _tolerated(
                scaling.tolerance,
                inflight / (target * current),
                current,
                f"{inflight:.0f} requests in flight over {target:.0f} a replica",
            )
        )
    return wants


def _tolerated(tolerance: float, ratio: float, current: float, reason: str) -> Want:
    if abs(ratio - 1.0) <= tolerance:
        return Want(current, f"{reason}: within {tolerance:.0%} of {current:.0f} replicas")
    return Want(float(max(1, math.ceil(ratio * current - 1e-9))), reason)


def _by_pressure(situation: Situation, current: float, ready: int) -> list[Want]:
    """One more than there are while queues or latency say so, unless replicas are still coming."""
    finding = situation.finding(*PRESSURE) or situation.finding(*STORM)
    if finding is None or _only_frozen(situation):
        return []
    if ready < current:
        return [Want(current, f"{finding.slug}, but {current - ready:.0f} replicas are still coming")]
    signal = finding.evidence[0].signal if finding.evidence else finding.slug
    return [Want(current + 1.0, f"{finding.slug} ({signal}): {finding.summary}", (finding.id,))]


def _only_frozen(situation: Situation) -> bool:
    """Every endpoint of the pool is hung, stale or down: its queue says nothing about demand."""
    return bool(situation.endpoints) and all(
        situation.finding(*FROZEN, endpoint=endpoint.name) for endpoint in situation.endpoints
    )


def _remember(situation: Situation, state: PlannerState, wanted: float | None) -> tuple[tuple[float, float], ...]:
    """Wishes of the longer stabilisation window. An unknown wish breaks the run: it is remembered as NaN."""
    horizon = situation.now - max(
        situation.policy.scaling.down_stabilisation_s, situation.policy.scaling.up_stabilisation_s
    )
    before = state.wanted.get(situation.pool, ())
    # One from before the window stays: cycles do not fall on its edge, and without it the window is never covered.
    older = sum(1 for at, _ in before if at <= horizon)
    kept = before[max(0, older - 1) :]
    return (*kept, (situation.now, math.nan if wanted is None else wanted))


def _asked_above(history: tuple[tuple[float, float], ...], current: float, now: float) -> float:
    """Seconds for which every remembered wish, up to now, was above `current`."""
    since = now
    for at, wanted in reversed(history):
        if not wanted > current:
            break
        since = at
    return now - since


def _up(situation: Situation, current: float, want: Want) -> Proposal:
    scaling = situation.policy.scaling
    most = current + max(scaling.up_step_share * current, scaling.up_step_least)
    allowed = situation.policy.lever(Lever.SCALE).maximum
    # Only what is allowed may be expected: the guards clamp the value, and the effect would else never come.
    value = min(want.replicas, most, most if allowed is None else allowed)
    expect = Expectation(READY_REPLICAS, situation.pool, Direction.UP, value, situation.now + scaling.ready_within_s)
    return Proposal(
        situation.key(Lever.SCALE),
        value,
        want.reason,
        Precedence.SCALING,
        want.evidence,
        expect,
        loosening=True,
    )


def _down(situation: Situation, current: float, ready: int, history: tuple[tuple[float, float], ...]) -> list[Proposal]:
    """One step down, if the highest wish of the whole window, the queues and the load at N-1 all allow it."""
    scaling = situation.policy.scaling
    covered = situation.now - history[0][0]
    highest = max((w for _, w in history), default=math.nan)
    if covered < scaling.down_stabilisation_s or any(math.isnan(w) for _, w in history) or highest >= current:
        return []
    step = max(highest, current - scaling.down_step)
    if ready < current or not _fits_one_less(situation, step):
        return []
    return [
        Proposal(
            situation.key(Lever.SCALE),
            step,
            f"highest wish of the last {scaling.down_stabilisation_s:.0f} s is {highest:.0f} replicas",
            Precedence.SCALING,
        )
    ]


def _fits_one_less(situation: Situation, step: float) -> bool:
    """No finding holds capacity, nothing waits (and that is known), and the load fits into `step` with a margin."""
    if situation.finding(*HOLDS_DOWN) is not None:
        return False
    waiting = situation.measure("engine_waiting")
    if waiting is None or waiting > 0:
        return False
    offered, per_replica = situation.measure("offered_rate"), situation.measure("capacity_per_endpoint")
    if offered is None or not per_replica:
        return True
    return offered <= per_replica * step * situation.policy.scaling.down_margin
