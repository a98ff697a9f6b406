"""Between wish and deed: stabilise, limit, clamp, block. Each guard leaves a step with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from actuators.model import Lever, LeverReading, LeverValue
from actuators.values import same
from inferostat.planner.model import Mode, Proposal, Step, StepName
from inferostat.planner.policy import LeverPolicy
from inferostat.planner.state import LeverMemory

# a tracking move smaller than this share of the value is not worth a write
TRACKING_DEADBAND = 0.02


@dataclass(frozen=True)
class Gate:
    """What the guards need to know besides the proposal itself."""

    now: float
    mode: Mode
    paused: bool
    policy: LeverPolicy
    memory: LeverMemory
    reading: LeverReading
    foreign: bool
    outranked_by: str | None


def guard(proposal: Proposal, gate: Gate) -> tuple[LeverValue, tuple[Step, ...], str | None]:
    """The value to set, the steps, and None; or the reason why nothing is done."""
    steps = [Step(StepName.PROPOSED, proposal.value, proposal.reason)]
    value = proposal.value
    clamped = _clamp(value, gate.policy)
    if clamped != value:
        bounds = f"allowed {_text(gate.policy.minimum)} to {_text(gate.policy.maximum)}"
        steps.append(Step(StepName.CLAMPED, clamped, bounds))
        value = clamped
    name, reason = _objection(proposal, value, gate)
    if reason is not None:
        steps.append(Step(name, gate.reading.value, reason))
    return value, tuple(steps), reason


def _clamp(value: LeverValue, policy: LeverPolicy) -> LeverValue:
    if value is None:
        return None
    low = value if policy.minimum is None else max(value, policy.minimum)
    return low if policy.maximum is None else min(low, policy.maximum)


def _objection(proposal: Proposal, value: LeverValue, gate: Gate) -> tuple[StepName, str | None]:
    reading, memory = gate.reading, gate.memory
    if not reading.known:
        return (
            StepName.BLOCKED,
            f"the lever's value is unknown ({reading.reason}): nothing is moved on unknown",
        )
    if same(proposal.key.lever, value, reading.value):  # 100 % admitted is no limit, as None is
        return StepName.BLOCKED, f"it is at {_text(value)} already"
    if gate.foreign:
        return StepName.BLOCKED, "another writer moved it: not ours to move"
    if gate.paused:
        return StepName.BLOCKED, "acting is paused"
    if gate.mode is Mode.OBSERVE:
        return StepName.BLOCKED, "mode observe"
    if proposal.undo_of is not None:
        return StepName.PROPOSED, None
    if gate.outranked_by is not None:
        return StepName.BLOCKED, gate.outranked_by
    if gate.now < memory.quarantined_until and not (proposal.loosening and _gives_back(proposal, gate)):
        return (
            StepName.BLOCKED,
            f"quarantined for {memory.quarantined_until - gate.now:.0f} s more: it had no effect",
        )
    return _pace(proposal, value, gate)


def _pace(proposal: Proposal, value: LeverValue, gate: Gate) -> tuple[StepName, str | None]:
    memory = gate.memory
    if memory.trial is not None and not proposal.tracking and not proposal.urgent:
        return StepName.STABILISED, f"the last move ({memory.trial.action.id}) is not verified yet"
    since = gate.now - memory.moved_at
    advice = gate.mode is Mode.ADVISE
    exempt = (proposal.tracking or proposal.urgent) and not advice
    if since < gate.policy.cooldown_s and not exempt:
        return StepName.LIMITED, f"moved {since:.0f} s ago, at most once in {gate.policy.cooldown_s:.0f} s"
    current = gate.reading.value
    if proposal.tracking and value is not None and current is not None and _hardly_moves(value, current):
        return StepName.STABILISED, "too small a change to write"
    return StepName.PROPOSED, None


def _hardly_moves(value: float, current: float) -> bool:
    return abs(value - current) < max(1.0, TRACKING_DEADBAND * current)


def _gives_back(proposal: Proposal, gate: Gate) -> bool:
    """Giving traffic back is never held; asking for more replicas again, after none came, is."""
    return proposal.key.lever is not Lever.SCALE


def _text(value: LeverValue) -> str:
    return "off" if value is None else f"{value:g}"
