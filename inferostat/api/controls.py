"""What a person may ask for over the API. The daemon implements the protocols; nothing is done here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

FAULT_KINDS = ("slow", "hang", "crash", "recover")
LONGEST_FAULT_S = 3600.0
LARGEST_FACTOR = 100.0


class ControlError(Exception):
    """A request that could not be carried out: expected, found, what to do. `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class BodyError(ControlError):
    """The body of the request is not what the verb takes."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 400)


@dataclass(frozen=True, slots=True)
class FaultOrder:
    """`targets` empty: all. `g`: times slower, for `slow`. `duration_s` None: until `recover`."""

    kind: str
    targets: tuple[str, ...] = ()
    g: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """`factor` times the scenario's load for `duration_s` seconds (None: until changed again)."""

    factor: float
    duration_s: float | None = None


class Controls(Protocol):
    """Each raises ControlError when it could not; a failed reload leaves the old configuration in force."""

    async def pause(self, reason: str) -> None: ...

    async def resume(self) -> None: ...

    async def reload(self) -> None: ...


class FleetControls(Protocol):
    """Only the embedded fleet has them."""

    async def fault(self, order: FaultOrder) -> None: ...

    async def load(self, order: LoadOrder) -> None: ...


def fault_order(body: Mapping[str, object]) -> FaultOrder:
    """From `{kind, targets, g, duration_s}` or `{"recover": true}`."""
    kind = "recover" if body.get("recover") is True else body.get("kind")
    if kind not in FAULT_KINDS:
        raise BodyError(f"expected kind to be one of {', '.join(FAULT_KINDS)}, found {kind!r}; name one of these")
    g = _positive(body, "g", LARGEST_FACTOR)
    if kind == "slow" and g is None:
        raise BodyError("expected g (times slower) for kind slow, found none; send for example 1.7")
    return FaultOrder(str(kind), _names(body.get("targets", "all")), g, _positive(body, "duration_s", LONGEST_FAULT_S))


def load_order(body: Mapping[str, object]) -> LoadOrder:
    """From `{factor, duration_s}`."""
    factor = _positive(body, "factor", LARGEST_FACTOR)
    if factor is None:
        raise BodyError("expected factor (times the scenario's load), found none; send for example 2")
    return LoadOrder(factor, _positive(body, "duration_s", LONGEST_FAULT_S))


def pause_reason(body: Mapping[str, object]) -> str:
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > 500:
        raise BodyError("expected reason to be a text of at most 500 characters, found something else; shorten it")
    return reason


def _names(value: object) -> tuple[str, ...]:
    if value == "all":
        return ()
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise BodyError(f'expected targets to be "all" or a list of names, found {value!r}; send one of these')


def _positive(body: Mapping[str, object], name: str, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= most:
        return float(value)
    raise BodyError(f"expected {name} to be a number above 0 and at most {most:g}, found {value!r}; correct it")
