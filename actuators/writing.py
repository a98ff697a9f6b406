"""How every backend writes: compare, write, read back, and one Outcome for each way it can end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from actuators.model import Action, ActuatorError, Lever, LeverReading, LeverValue, Outcome, Status
from actuators.values import canonical, out_of_range, same, show

POLL_S = 0.05


class Conflict(ActuatorError):
    """Not written: the value is not what the decision assumed. `found` is what it is."""

    def __init__(self, message: str, found: LeverValue) -> None:
        super().__init__(message)
        self.found = found


class Ignored(ActuatorError):
    """Accepted, but the readback shows `found`; the message says what to look for."""

    def __init__(self, advice: str, found: LeverValue) -> None:
        super().__init__(advice)
        self.found = found


def moved(action: Action, found: LeverValue) -> Conflict:
    """The conflict of a conditional write that met another value."""
    return Conflict(f"expected {show(action.before)}, found {show(found)}: another writer moved it, decide anew", found)


def needs_write(action: Action, reading: LeverReading) -> bool:
    """False when the value is there already.

    Raises Conflict when it is neither the old nor the new one, ActuatorError when it is unknown.
    """
    if not reading.known:
        raise ActuatorError(reading.reason)
    if same(action.key.lever, reading.value, action.after):
        return False
    if not same(action.key.lever, reading.value, action.before):
        raise moved(action, reading.value)
    return True


async def outcome(
    action: Action, now: float, levers: Collection[Lever], write: Callable[[Action], Awaitable[None]]
) -> Outcome:
    """Carry out `write` and tell how it ended; a value out of range never reaches it."""
    key = action.key
    try:
        if key.lever not in levers:
            raise ActuatorError(
                f"expected one of {', '.join(sorted(levers))}, found {key.lever}: not with these options"
            )
        if problem := out_of_range(key.lever, action.after):
            raise ActuatorError(problem)
        await write(action)
    except Ignored as ignored:
        return Outcome(
            action.id,
            now,
            Status.IGNORED,
            ignored.found,
            f"{key}: expected to read back {show(action.after)}, found {show(ignored.found)}: {ignored}",
        )
    except Conflict as conflict:
        return Outcome(action.id, now, Status.CONFLICT, conflict.found, f"{key}: {conflict}")
    except ActuatorError as error:
        return Outcome(action.id, now, Status.FAILED, None, f"{key}: {error}")
    return Outcome(action.id, now, Status.APPLIED, canonical(key.lever, action.after))


async def eventually(settled: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Ask again until it is so, at most `within_s` seconds; always asks at least once."""
    deadline = time.monotonic() + within_s
    while not await settled():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


async def holds(settled: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it is so now; False when nobody tells. For a write whose answer did not come."""
    try:
        return await settled()
    except ActuatorError:
        return False
