"""What the embedded fleet says of itself: replicas, faults in force, and what its clients measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One simulated replica. `state`: pending, warming, ready, draining, stopped, crashed. `g`: slowness."""

    name: str
    address: str
    state: str
    since: float | None = None
    g: float | None = None
    build: str | None = None


@dataclass(frozen=True, slots=True)
class FaultInfo:
    """A fault in force. `until` (unix s) is None when only `recover` ends it."""

    kind: str
    targets: tuple[str, ...] = ()
    g: float | None = None
    since: float | None = None
    until: float | None = None

    @property
    def key(self) -> tuple[str, tuple[str, ...], float | None]:
        return (self.kind, self.targets, self.g)

    def text(self) -> str:
        """`slow 1.7x: engine-0, engine-1`."""
        name = f"{self.kind} {self.g:g}x" if self.g is not None else self.kind
        return f"{name}: {', '.join(self.targets) or 'all'}"


@dataclass(frozen=True)
class FleetInfo:
    """The embedded fleet in one cycle. `clients`: what the load generator measured (requests per second)."""

    replicas: tuple[ReplicaInfo, ...] = ()
    target: int | None = None
    ready: int | None = None
    max_replicas: int | None = None
    loop_lag_p99_s: float | None = None
    faults: tuple[FaultInfo, ...] = ()
    load_factor: float | None = None
    clients: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_admin(
        cls,
        document: Mapping[str, object],
        load_factor: float | None = None,
        clients: Mapping[str, float] | None = None,
    ) -> FleetInfo:
        """From the answer of `GET /admin/fleet`. A field that is not there stays unknown (None)."""
        return cls(
            replicas=tuple(_replica(item) for item in _mappings(document.get("replicas"))),
            target=_whole(document.get("target")),
            ready=_whole(document.get("ready")),
            max_replicas=_whole(document.get("max_replicas")),
            loop_lag_p99_s=_number(document.get("loop_lag_p99_s")),
            faults=tuple(_fault(item) for item in _mappings(document.get("faults"))),
            load_factor=load_factor,
            clients=dict(clients or {}),
        )


def _replica(item: Mapping[str, object]) -> ReplicaInfo:
    build = item.get("build")
    return ReplicaInfo(
        name=str(item.get("name", "?")),
        address=str(item.get("address", "?")),
        state=str(item.get("state", "unknown")),
        since=_number(item.get("since")),
        g=_number(item.get("g")),
        build=None if build is None else str(build),
    )


def _fault(item: Mapping[str, object]) -> FaultInfo:
    targets = item.get("targets", ())
    names = (
        (targets,) if isinstance(targets, str) else tuple(targets) if isinstance(targets, Sequence) else ()
    )
    return FaultInfo(
        kind=str(item.get("kind", "?")),
        targets=tuple(str(name) for name in names),
        g=_number(item.get("g")),
        since=_number(item.get("since", item.get("at"))),
        until=_number(item.get("until")),
    )


def _mappings(value: object) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, Mapping))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
