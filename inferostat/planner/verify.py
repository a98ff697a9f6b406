"""Did it help? Each action under trial is compared with what it promised; without effect it is undone."""

from __future__ import annotations

from dataclasses import replace

from actuators.model import Direction, Expectation, LeverKey
from analyzers.codes import CODES
from analyzers.model import Evidence, Finding, Layer, Scope, ScopeKind, Severity
from inferostat.planner.model import Precedence, Proposal, Verdict
from inferostat.planner.situation import READY_REPLICAS, Situation
from inferostat.planner.state import PlannerState, Trial


def review(
    situation: Situation, state: PlannerState
) -> tuple[list[Proposal], list[Verdict], list[Finding], PlannerState]:
    """Verdicts of the pool's trials; ineffective ones come back as proposals that undo them."""
    undos: list[Proposal] = []
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    for key, memory in state.levers.items():
        trial = memory.trial
        if key.pool != situation.pool or trial is None or trial.action.expect is None:
            continue
        expect = trial.action.expect
        value = situation.measure(expect.measure)
        if value is not None and _met(expect, value):
            verdicts.append(Verdict(trial.action.id, "verified", _says(expect, value)))
            state = state.with_memory(key, replace(memory, trial=None))
        elif situation.now < expect.deadline:
            continue
        elif value is None and not trial.extended:
            verdicts.append(Verdict(trial.action.id, "inconclusive", f"{expect.measure} is unknown: wait once more"))
            state = state.with_memory(key, replace(memory, trial=_extended(trial, situation.now)))
        elif value is None:
            verdicts.append(Verdict(trial.action.id, "inconclusive", f"{expect.measure} stayed unknown: left as it is"))
            state = state.with_memory(key, replace(memory, trial=None))
        else:
            verdicts.append(Verdict(trial.action.id, "ineffective", _says(expect, value)))
            findings.append(_ineffective(situation, key, trial, value))
            undos.append(_undo(trial, value))
            until = situation.now + situation.policy.lever(key.lever).quarantine_s
            state = state.with_memory(key, replace(memory, trial=None, quarantined_until=until))
    return undos, verdicts, findings, state


def _met(expect: Expectation, value: float) -> bool:
    return value <= expect.bound if expect.direction is Direction.DOWN else value >= expect.bound


def _says(expect: Expectation, value: float) -> str:
    relation = "at most" if expect.direction is Direction.DOWN else "at least"
    return f"expected {expect.measure} {relation} {expect.bound:.3g}, found {value:.3g}"


def _extended(trial: Trial, now: float) -> Trial:
    expect = trial.action.expect
    assert expect is not None
    longer = replace(expect, deadline=now + (expect.deadline - trial.applied_at))
    return replace(trial, action=replace(trial.action, expect=longer), extended=True)


def _undo(trial: Trial, value: float) -> Proposal:
    action = trial.action
    assert action.expect is not None
    return Proposal(
        action.key,
        action.before,
        f"undo of {action.id}: {_says(action.expect, value)}",
        Precedence.UNDO,
        action.evidence,
        urgent=True,
        undo_of=action.id,
    )


def _ineffective(situation: Situation, key: LeverKey, trial: Trial, value: float) -> Finding:
    action = trial.action
    assert action.expect is not None
    slug = "unschedulable" if action.expect.measure == READY_REPLICAS else "actuation-ineffective"
    return Finding(
        slug=slug,
        code=CODES[slug],
        severity=Severity.WARNING,
        scope=Scope(ScopeKind.POOL, situation.pool),
        since=situation.now,
        confidence=0.9,
        summary=f"{key} moved and did not have its effect: {_says(action.expect, value)}",
        layer=Layer.UNKNOWN,
        evidence=(Evidence(action.expect.measure, value, action.expect.bound, action.reason),),
        pool=situation.pool,
    )
