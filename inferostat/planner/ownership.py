"""Whose lever is it? Reassert what a restarted system forgot; give way to another writer and say so."""

from __future__ import annotations

from dataclasses import replace

from actuators.model import LeverKey, LeverReading, LeverValue
from analyzers.codes import CODES
from analyzers.model import Evidence, Finding, Layer, Scope, ScopeKind, Severity
from inferostat.planner.model import Precedence, Proposal
from inferostat.planner.situation import Situation
from inferostat.planner.state import PlannerState

SETTLE_S = 3.0


def review(
    situation: Situation, state: PlannerState
) -> tuple[list[Proposal], list[Finding], set[LeverKey], PlannerState]:
    """Reassertions, findings, and the levers that someone else holds (nothing may be done with those)."""
    reasserts: list[Proposal] = []
    findings: list[Finding] = []
    foreign: set[LeverKey] = set()
    for key, memory in state.levers.items():
        if key.pool != situation.pool:
            continue
        reading = situation.readings.get(key)
        if reading is None or not reading.known or situation.now - memory.moved_at < SETTLE_S:
            continue
        if memory.foreign_since is not None:
            if reading.value == memory.foreign:
                foreign.add(key)
                findings.append(_other_writer(situation, reading, memory.held, memory.foreign_since))
                continue
            state = state.with_memory(key, replace(memory, foreign=None, foreign_since=None, owned=False))
            continue
        if not memory.owned or reading.value == memory.held:
            continue
        if reading.value is None:
            reasserts.append(
                Proposal(
                    key,
                    memory.held,
                    f"{key} was {memory.held} and is back at its default: the system forgot it, set it again",
                    Precedence.SAFETY,
                    urgent=True,
                )
            )
        else:
            changed = replace(memory, foreign=reading.value, foreign_since=situation.now, trial=None)
            state = state.with_memory(key, changed)
            foreign.add(key)
            findings.append(_other_writer(situation, reading, memory.held, situation.now))
    return reasserts, findings, foreign, state


def _other_writer(situation: Situation, reading: LeverReading, held: LeverValue, since: float) -> Finding:
    who = reading.owner or "someone else"
    return Finding(
        slug="other-writer",
        code=CODES["other-writer"],
        severity=Severity.WARNING,
        scope=Scope(ScopeKind.POOL, situation.pool),
        since=since,
        confidence=0.9,
        summary=f"{reading.key} was set by {who}: expected {held}, found {reading.value}; left alone",
        layer=Layer.CHANGE,
        evidence=(Evidence(str(reading.key), reading.value, held, "value differs from what we set and hold"),),
        pool=situation.pool,
    )
