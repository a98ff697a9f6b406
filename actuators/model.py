"""Nouns of acting: levers, their readings, actions and outcomes, and what a backend must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Lever(StrEnum):
    """What can be moved, and the unit of its value (`None` is always "no limit, the system's own default").

    SCALE: replicas wanted of a pool. WEIGHT: routing weight of an endpoint, 1..100, 0 takes it out.
    BREAKER: requests a route may have in flight at once. ADMISSION: percent of new requests let in.
    RETRY_BUDGET: percent of retries let in. DRAIN: 1 while an endpoint finishes its work and gets no more.
    WAKE: 1 to wake a sleeping endpoint.
    """

    SCALE = "scale"
    WEIGHT = "weight"
    BREAKER = "breaker"
    ADMISSION = "admission"
    RETRY_BUDGET = "retry_budget"
    DRAIN = "drain"
    WAKE = "wake"


LeverValue = float | None


@dataclass(frozen=True, slots=True)
class LeverKey:
    """One handle: a lever on a target (pool for SCALE, BREAKER, ADMISSION, RETRY_BUDGET; endpoint for others)."""

    lever: Lever
    pool: str
    target: str

    def __str__(self) -> str:
        return f"{self.lever}:{self.target}"


@dataclass(frozen=True, slots=True)
class LeverReading:
    """What a backend read of a handle. `known` False: `reason` says why, and nothing may be concluded.

    `ready` is for SCALE: replicas that serve now (the rest of `value` is pending or warming); None elsewhere.
    `owner` names another writer where the system tells.
    """

    key: LeverKey
    known: bool
    value: LeverValue = None
    ready: int | None = None
    reason: str = ""
    owner: str | None = None


class Direction(StrEnum):
    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the action should do: `measure` moves in `direction` past `bound` by `deadline` (unix s)."""

    measure: str
    scope: str
    direction: Direction
    bound: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Action:
    """A value: everything needed to do it, to check it and to undo it."""

    id: str
    at: float
    key: LeverKey
    before: LeverValue
    after: LeverValue
    reason: str
    evidence: tuple[str, ...] = ()
    expect: Expectation | None = None
    undo_of: str | None = None


class Status(StrEnum):
    APPLIED = "applied"  # written and read back equal
    IGNORED = "ignored"  # accepted, but the readback still shows something else
    CONFLICT = "conflict"  # not written: the value was not what the decision assumed
    FAILED = "failed"  # the system refused or could not be reached; nothing is known to have changed
    ADVISED = "advised"  # not written: the mode does not allow it


@dataclass(frozen=True, slots=True)
class Outcome:
    action_id: str
    at: float
    status: Status
    readback: LeverValue = None
    detail: str = ""


class ActuatorError(Exception):
    """A backend could not do its work: expected, found, what to do."""


@runtime_checkable
class Backend(Protocol):
    """A system that can be moved. Built as `Backend.from_options(name, options)`; owns no threads.

    `read` never raises for a fault of the other side: it returns readings with known=False and the reason.
    `apply` checks that the current value equals `action.before`, writes, reads back, and reports; an action id
    it has already carried out must not be carried out a second time.
    """

    name: str
    levers: frozenset[Lever]

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, object]) -> Backend: ...

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]: ...

    async def apply(self, action: Action, now: float) -> Outcome: ...

    async def close(self) -> None: ...
