"""What a run takes over from an earlier one: actions it left open, levers it held, the planner's memory of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actuators.model import Action, Lever, LeverKey, LeverReading, Outcome
from actuators.values import canonical
from inferostat.journal import Journal, Pending, resolve
from inferostat.planner.state import Episode, LeverMemory, PlannerState, Trial

LIMITS = (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)


class OpenActions:
    """Actions that the journal has without an outcome. They are never sent again."""

    def __init__(self, open_ones: Iterable[Pending] = ()) -> None:
        self._open = tuple(open_ones)

    @property
    def keys(self) -> tuple[LeverKey, ...]:
        """The levers whose readings would settle them."""
        return tuple({pending.action.key: None for pending in self._open})

    def add(self, action: Action, backend: str) -> None:
        self._open = (*self._open, Pending(action, backend))

    def settle(self, journal: Journal, readings: Sequence[LeverReading], now: float) -> list[tuple[Action, Outcome]]:
        """Write the outcome of every action whose lever was read; the others stay open. Raises JournalError."""
        by_key = {reading.key: reading for reading in readings}
        settled: list[tuple[Action, Outcome]] = []
        for pending in self._open:
            reading = by_key.get(pending.action.key)
            outcome = None if reading is None else resolve(pending.action, reading, now)
            if outcome is not None:
                journal.finish(pending.action, outcome)
                self._open = tuple(other for other in self._open if other is not pending)
                settled.append((pending.action, outcome))
        return settled


def remembered(journal: Journal, now: float) -> PlannerState:
    """The planner's memory as far as the journal keeps it: levers held, trials, quarantines, open episodes."""
    trials = {record.action.key: record for record in journal.unverified()}
    quarantined = journal.quarantined(now)
    state = PlannerState()
    held = journal.held()
    for key in {*held, *trials, *quarantined}:
        record = trials.get(key)
        trial = None
        if record is not None and record.outcome is not None:
            trial = Trial(record.action, record.outcome.at)
        state = state.with_memory(
            key,
            LeverMemory(
                owned=key in held,
                held=canonical(key.lever, held[key].value) if key in held else None,
                moved_at=held[key].since if key in held else float("-inf"),
                trial=trial,
                quarantined_until=quarantined[key].until if key in quarantined else float("-inf"),
            ),
        )
    for key in held:
        state = with_episode(state, key, now)
    return state


def with_episode(state: PlannerState, key: LeverKey, now: float) -> PlannerState:
    """The storm programme goes on for a limit that we hold from before."""
    if key.lever not in LIMITS or not state.memory(key).owned or key.pool in state.episodes:
        return state
    return state.with_episode(key.pool, Episode(now, "taken up after a restart", now))
