"""What the embedded fleet says of itself: replicas, faults in force, and what its clients measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


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
    """One kind of fault in force on some replicas. `g`: times slower. `until` (unix s) None: not known."""

    kind: str
    targets: tuple[str, ...] = ()
    g: float | None = None
    until: float | None = None

    @property
    def name(self) -> str:
        """`slow 1.7x`, `hang`."""
        return f"{self.kind} {self.g:g}x" if self.g is not None else self.kind

    def text(self) -> str:
        """`slow 1.7x: engine-0, engine-1`."""
        return f"{self.name}: {', '.join(self.targets)}"


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
            faults=_faults(_mappings(document.get("faults"))),
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


def _faults(items: Sequence[Mapping[str, object]]) -> tuple[FaultInfo, ...]:
    """The fleet lists one item per replica; the same fault on several replicas is one fault here."""
    grouped: dict[tuple[str, float | None], FaultInfo] = {}
    for item in items:
        kind, g = str(item.get("kind", "?")), _number(item.get("g"))
        for phase in ("decode", "prefill"):
            factor = _number(item.get(f"g_{phase}"))
            if g in (None, 1.0) and factor not in (None, 1.0):
                kind, g = f"{kind} {phase}", factor
        known = grouped.get((kind, g), FaultInfo(kind, (), g, _number(item.get("until"))))
        grouped[kind, g] = replace(known, targets=(*known.targets, str(item.get("target", "?"))))
    return tuple(grouped.values())


def _mappings(value: object) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, Mapping))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
