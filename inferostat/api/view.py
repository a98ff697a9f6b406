"""One cycle as it is shown, and an action with its fate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from actuators.model import Action, LeverReading, Outcome
from analyzers.model import Analysis, Measure, PoolSettings, Scope, ScopeKind
from collector.history import History
from collector.model import Frame
from inferostat.api.fleet import FleetInfo
from inferostat.planner.model import Decision, Verdict


@dataclass(frozen=True, slots=True)
class Pause:
    at: float
    reason: str = ""


@dataclass(frozen=True)
class ActionRecord:
    """An action with what became of it: the answer when it was sent, and later the verdict on its effect."""

    action: Action
    mode: str
    outcome: Outcome | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class CycleView:
    """One cycle as it is shown. `report` is the loop's own sentence; `outcomes` those of this cycle."""

    cycle: int
    at: float
    duration_s: float
    interval_s: float
    report: str
    frame: Frame
    history: History
    analysis: Analysis
    decision: Decision | None = None
    outcomes: tuple[Outcome, ...] = ()
    readings: tuple[LeverReading, ...] = ()
    overran: bool = False
    settings: Mapping[str, PoolSettings] = field(default_factory=dict)
    fleet: FleetInfo | None = None

    def measure(self, name: str, kind: ScopeKind, scope: str) -> Measure | None:
        """The measure with its state; None when no analyzer gave it."""
        return self._measures.get((name, Scope(kind, scope)))

    @cached_property
    def _measures(self) -> dict[tuple[str, Scope], Measure]:
        return {(measure.name, measure.scope): measure for measure in self.analysis.measures}
