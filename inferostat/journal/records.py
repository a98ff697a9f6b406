"""What the journal gives back, and how its values are spelt in the tables."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from actuators.model import Action, Direction, Expectation, Lever, LeverKey, LeverValue, Outcome, Status


@dataclass(frozen=True, slots=True)
class Pending:
    """An action written down whose outcome never was."""

    action: Action
    backend: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What an action did, seen later; `state` is the planner's word for it."""

    action_id: str
    at: float
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """An action with all that became of it. `undone_by` is the id of the action that took it back."""

    action: Action
    backend: str
    outcome: Outcome | None = None
    verification: Verification | None = None
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A cycle's decision; `document` is plain JSON."""

    id: int
    at: float
    cycle: int
    summary: str
    document: dict[str, Any]


class Held(NamedTuple):
    """A value we set at `since` (unix s) and still answer for."""

    value: LeverValue
    since: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A lever left alone until `until` (unix s) because moving it had no effect."""

    key: LeverKey
    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Acting is stopped since `at`."""

    at: float
    by: str
    reason: str


def plain(value: object) -> Any:
    """The value as JSON can hold it: dataclasses as objects, tuples as lists, NaN as null."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def to_json(value: object) -> str:
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def action_row(action: Action, backend: str, decision_id: int | None) -> tuple[object, ...]:
    """Values of table `actions`, in the order of its columns."""
    return (
        action.id,
        action.at,
        decision_id,
        backend,
        *key_row(action.key),
        action.before,
        action.after,
        action.reason,
        to_json(action.evidence),
        None if action.expect is None else to_json(action.expect),
        action.undo_of,
    )


def key_row(key: LeverKey) -> tuple[str, str, str]:
    return (key.lever.value, key.pool, key.target)


def key_of(row: sqlite3.Row) -> LeverKey:
    return LeverKey(Lever(row["lever"]), row["pool"], row["target"])


def action_of(row: sqlite3.Row) -> Action:
    expect = None
    if row["expect"] is not None:
        fields = json.loads(row["expect"])
        expect = Expectation(**{**fields, "direction": Direction(fields["direction"])})
    return Action(
        id=row["id"],
        at=row["at"],
        key=key_of(row),
        before=row["before"],
        after=row["after"],
        reason=row["reason"],
        evidence=tuple(json.loads(row["evidence"])),
        expect=expect,
        undo_of=row["undo_of"],
    )


def record_of(row: sqlite3.Row) -> ActionRecord:
    """From a row of `actions` joined with its outcome (o_*), its verification (v_*) and its undo."""
    outcome = verification = None
    if row["o_status"] is not None:
        outcome = Outcome(row["id"], row["o_at"], Status(row["o_status"]), row["o_readback"], row["o_detail"])
    if row["v_state"] is not None:
        verification = Verification(row["id"], row["v_at"], row["v_state"], row["v_detail"])
    return ActionRecord(action_of(row), row["backend"], outcome, verification, row["undone_by"])
