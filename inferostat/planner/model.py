"""Nouns of deciding: proposals, the steps they go through, and the decision of one cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from actuators.model import Action, Expectation, LeverKey, LeverValue
from analyzers.model import Finding
from inferostat.planner.state import PlannerState


class Mode(StrEnum):
    """How much authority a lever has: watch only, say what should be done, or do it."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ACT = "act"


class Precedence(IntEnum):
    """Who wins when levers conflict; lower wins."""

    UNDO = 0
    SAFETY = 1
    ROUTING = 2
    SCALING = 3


class StepName(StrEnum):
    PROPOSED = "proposed"
    STABILISED = "stabilised"
    LIMITED = "limited"
    CLAMPED = "clamped"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Step:
    name: StepName
    value: LeverValue
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one concern would do with one lever, before any guard has looked at it.

    `tracking`: follows a value inside an engaged episode (a limit that moves with the queue); it is verified
    as one with the move that engaged it and is exempt from the cool-down. `urgent` skips the cool-down only.
    `loosening`: gives traffic or capacity back; quarantine does not hold it.
    """

    key: LeverKey
    value: LeverValue
    reason: str
    precedence: Precedence
    evidence: tuple[str, ...] = ()
    expect: Expectation | None = None
    tracking: bool = False
    urgent: bool = False
    loosening: bool = False
    undo_of: str | None = None


@dataclass(frozen=True, slots=True)
class Consideration:
    """A lever that was looked at: the chain of steps and, in one sentence, where it ended."""

    key: LeverKey
    steps: tuple[Step, ...]
    result: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an earlier action: `state` is verified, ineffective, inconclusive or superseded."""

    action_id: str
    state: str
    detail: str


@dataclass(frozen=True)
class Decision:
    """One cycle's outcome. `modes` tells for each action whether it may be sent or is advice."""

    at: float
    actions: tuple[Action, ...]
    considered: tuple[Consideration, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    state: PlannerState
    modes: Mapping[str, Mode] = field(default_factory=dict)

    def sentence(self) -> str:
        """What was decided and why, for the log and for tests."""
        if self.actions:
            return "; ".join(
                f"{self.modes[action.id]} {action.key} {_text(action.before)} -> {_text(action.after)}: {action.reason}"
                for action in self.actions
            )
        blocked = [item for item in self.considered if item.steps[-1].name is StepName.BLOCKED]
        if blocked:
            return f"held {blocked[0].key}: {blocked[0].steps[-1].reason}"
        return "nothing to do"


def _text(value: LeverValue) -> str:
    return "off" if value is None else f"{value:g}"
