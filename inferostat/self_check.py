"""What the loop remembers of its own hindrances between cycles: the journal's health and levers without effect."""

from __future__ import annotations

from collections.abc import Sequence

from actuators.model import Action, LeverKey, LeverReading, Outcome, Status
from analyzers.model import Finding
from inferostat import hindrance
from inferostat.hindrance import Disobedience, JournalState
from inferostat.journal import Journal, JournalError
from inferostat.planner.policy import LeverPolicy

JOURNAL_CHECK_S = 30.0


class SelfCheck:
    """`journal_error`: why the journal took no write when it was last asked; None while it does."""

    def __init__(self) -> None:
        self.journal_error: str | None = None
        self._checked_at = float("-inf")
        self._disobeying: dict[LeverKey, Disobedience] = {}

    def check_journal(self, journal: Journal, now: float) -> None:
        """Whether it takes writes, before one is needed: an agent that cannot act must say so."""
        if self.journal_error is None and now - self._checked_at < JOURNAL_CHECK_S:
            return
        self._checked_at = now
        try:
            journal.check()
            self.journal_error = None
        except JournalError as error:
            self.journal_error = str(error)

    def journal_failed(self, error: JournalError) -> str:
        """Remember the fault until a check succeeds; returns its text."""
        self.journal_error = str(error)
        return self.journal_error

    def heed(self, action: Action, outcome: Outcome, policy: LeverPolicy, now: float) -> float | None:
        """Until when the lever is to be left alone, if it is: longer each time it does not follow an order."""
        if outcome.status is Status.APPLIED:
            self._disobeying = hindrance.without(self._disobeying, action.key)
        if outcome.status not in hindrance.DISOBEYED or self.journal_error is not None:
            return None
        item = hindrance.disobeyed(self._disobeying.get(action.key), outcome, policy, now)
        self._disobeying = {**self._disobeying, action.key: item}
        return item.until if item.until > now else None

    def find(
        self,
        readings: Sequence[LeverReading],
        recovered: str | None,
        previous: Sequence[Finding],
        now: float,
        keep_s: float,
    ) -> tuple[Finding, ...]:
        """Findings of this cycle. `recovered`: what became of a damaged journal at the start."""
        self._disobeying = hindrance.recent(self._disobeying, now, keep_s)
        journal = JournalState(self.journal_error, recovered)
        return hindrance.find(readings, self._disobeying, journal, previous, now)
