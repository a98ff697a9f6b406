"""What became of an action nobody wrote the outcome of. Pure."""

from __future__ import annotations

from actuators.model import Action, LeverReading, Outcome, Status
from actuators.values import same, show


def resolve(action: Action, reading: LeverReading, now: float) -> Outcome | None:
    """The outcome by what is there now, or None while that is unknown. The action is never repeated.

    At its new value it was carried out, at its old one it was not. A lever at a third value was moved by
    someone since: whether ours was ever carried out can no longer be told and no longer matters.
    """
    if not reading.known:
        return None
    lever = action.key.lever
    if same(lever, reading.value, action.after):
        status, found = Status.APPLIED, "carried out"
    elif same(lever, reading.value, action.before):
        status, found = Status.FAILED, "not carried out"
    else:
        status, found = Status.CONFLICT, "moved by another writer since"
    return Outcome(
        action.id,
        now,
        status,
        reading.value,
        f"resolved after a restart: the lever shows {show(reading.value)}, so it was {found}",
    )
