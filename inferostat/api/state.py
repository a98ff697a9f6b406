"""The read model behind API and page: what the daemon publishes each cycle, and what is remembered of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from inferostat.api.events import Event, changes
from inferostat.api.pools import pool_point
from inferostat.api.rows import Recent, recent_window
from inferostat.api.series import SeriesRing
from inferostat.api.view import ActionRecord, CycleView, Pause
from inferostat.planner.model import Decision

__all__ = ["ActionRecord", "CycleView", "Pause", "StatusBoard"]

KEPT_ACTIONS = 200
KEPT_EVENTS = 200
KEPT_DECISIONS = 50


class StatusBoard:
    """Filled by the daemon in the event loop that also serves the API; holds no lock and does no I/O."""

    def __init__(self, version: str, mode: str, embedded: bool = False, started_at: float = 0.0) -> None:
        self.version = version
        self.mode = mode
        self.embedded = embedded
        self.started_at = started_at
        self.paused: Pause | None = None
        self.view: CycleView | None = None
        self.recent: Recent | None = None
        self.series = SeriesRing()
        self.events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self.decisions: deque[Decision] = deque(maxlen=KEPT_DECISIONS)
        self._records: dict[str, ActionRecord] = {}
        self._configured = False

    def configured(self, mode: str) -> None:
        """The configuration is loaded (again)."""
        self._configured = True
        self.mode = mode

    def not_ready(self) -> str | None:
        """Why the agent is not ready to be relied on; None when it is."""
        if not self._configured:
            return "expected a loaded configuration, found none yet; wait, or look at the log for its errors"
        if self.view is None:
            return "expected a first cycle, found none yet; it follows within one interval of the start"
        return None

    def publish(self, view: CycleView) -> None:
        """Take over one cycle: latest state, chart points, actions with their fate, and what has changed."""
        self.recent = recent = recent_window(view.history, view.frame, view.interval_s)
        for pool in view.frame.topology.pools:
            self.series.append(pool, view.at, pool_point(view, pool, recent))
        self.series.keep_only(view.frame.topology.pools)
        self.events.extend(changes(self.view, view, self.records))
        self._record(view)
        self.view = view

    def pause(self, pause: Pause | None, now: float) -> None:
        """Show that acting is paused (or, with None, resumed)."""
        if (pause is None) == (self.paused is None):
            return
        self.paused = pause
        title = "acting resumed" if pause is None else "acting paused"
        self.events.append(Event(now, "control", title, detail=pause.reason if pause else ""))

    def remember(self, records: Iterable[ActionRecord]) -> None:
        """Records of an earlier run, from the journal, oldest first."""
        for record in records:
            self._keep(record)

    @property
    def records(self) -> tuple[ActionRecord, ...]:
        """Oldest first."""
        return tuple(self._records.values())

    def _record(self, view: CycleView) -> None:
        decision = view.decision
        if decision is not None:
            for verdict in decision.verdicts:
                if (known := self._records.get(verdict.action_id)) is not None:
                    self._records[verdict.action_id] = replace(known, verdict=verdict)
            for action in decision.actions:
                self._keep(ActionRecord(action, str(decision.modes.get(action.id, self.mode))))
            if decision.actions:
                self.decisions.append(decision)
        for outcome in view.outcomes:
            if (known := self._records.get(outcome.action_id)) is not None:
                self._records[outcome.action_id] = replace(known, outcome=outcome)

    def _keep(self, record: ActionRecord) -> None:
        self._records[record.action.id] = record
        while len(self._records) > KEPT_ACTIONS:
            del self._records[next(iter(self._records))]
