"""The arbiter: one place that weighs all levers of all pools against each other, once a cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actuators.model import Action, Lever, LeverKey, LeverReading
from analyzers.model import Analysis, Finding
from collector.model import Frame
from inferostat.planner import ownership, routing, safety, scaling, verify
from inferostat.planner.guards import Gate, guard
from inferostat.planner.model import Consideration, Decision, Mode, Precedence, Proposal, Verdict
from inferostat.planner.policy import Policy
from inferostat.planner.situation import Situation
from inferostat.planner.state import PlannerState


def decide(
    analysis: Analysis,
    frame: Frame,
    readings: Sequence[LeverReading],
    policy: Policy,
    state: PlannerState,
    now: float,
) -> Decision:
    """Actions with their reasons. Same arguments, same decision: nothing is read but the arguments."""
    by_key = {reading.key: reading for reading in readings}
    actions: list[Action] = []
    considered: list[Consideration] = []
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    modes: dict[str, Mode] = {}
    for pool in frame.topology.pools:
        situation = Situation(pool, now, frame, analysis, by_key, policy.pool(pool))
        undos, judged, ineffective, state = verify.review(situation, state)
        reasserts, others, foreign, state = ownership.review(situation, state)
        verdicts += judged
        findings += [*ineffective, *others]
        safe, state = safety.propose(situation, state)
        routed, state = routing.propose(situation, state)
        scaled, state = scaling.propose(situation, state)
        for proposal in _one_per_lever([*undos, *safe, *reasserts, *routed, *scaled]):
            action, item, mode = _settle(proposal, situation, state, by_key, foreign, policy.paused)
            considered.append(item)
            if action is not None:
                actions.append(action)
                modes[action.id] = mode
    return Decision(now, tuple(actions), tuple(considered), tuple(verdicts), tuple(findings), state, modes)


def _one_per_lever(proposals: Sequence[Proposal]) -> list[Proposal]:
    """The highest-ranking proposal of each lever, in order of precedence; the first wins a tie."""
    best: dict[LeverKey, Proposal] = {}
    for proposal in sorted(proposals, key=lambda item: item.precedence):
        best.setdefault(proposal.key, proposal)
    return list(best.values())


def _settle(
    proposal: Proposal,
    situation: Situation,
    state: PlannerState,
    readings: Mapping[LeverKey, LeverReading],
    foreign: set[LeverKey],
    paused: bool,
) -> tuple[Action | None, Consideration, Mode]:
    key = proposal.key
    mode = situation.policy.mode_of(key.lever)
    reading = readings.get(key, LeverReading(key, known=False, reason="no backend reads this lever"))
    gate = Gate(
        situation.now,
        mode,
        paused,
        situation.policy.lever(key.lever),
        state.memory(key),
        reading,
        key in foreign,
        _outranked(proposal, situation, state),
    )
    value, steps, objection = guard(proposal, gate)
    if objection is not None:
        return None, Consideration(key, steps, f"held: {objection}"), mode
    action = Action(
        id=f"{int(situation.now * 1000)}-{key.lever}-{key.target}",
        at=situation.now,
        key=key,
        before=reading.value,
        after=value,
        reason=proposal.reason,
        evidence=proposal.evidence,
        expect=proposal.expect,
        undo_of=proposal.undo_of,
    )
    return action, Consideration(key, steps, f"{mode}: {proposal.reason}"), mode


def _outranked(proposal: Proposal, situation: Situation, state: PlannerState) -> str | None:
    """Safety over routing over scaling: why this proposal has to wait for a higher concern, if it has to."""
    storm = routing.in_storm(situation, state)
    # An endpoint that was out and is well again is the capacity that a storm needs most.
    returning = proposal.loosening and proposal.key.target in state.taken_out
    if proposal.precedence is Precedence.ROUTING and not proposal.urgent and not returning and storm:
        return "a storm is being handled: weights wait, except to take an endpoint out and to let it back in"
    lowering = proposal.value is not None and proposal.value < (
        situation.reading(proposal.key.lever, proposal.key.target).value or 0.0
    )
    if proposal.key.lever is Lever.SCALE and lowering and storm:
        return "a storm is being handled: no capacity is taken away"
    return None
