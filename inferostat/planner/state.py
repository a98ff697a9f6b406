"""What the planner remembers between cycles. Every change makes a new value, so that a replay is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from actuators.model import Action, LeverKey, LeverValue, Outcome, Status


@dataclass(frozen=True, slots=True)
class Trial:
    """An applied action whose effect is still to be seen."""

    action: Action
    applied_at: float
    extended: bool = False


@dataclass(frozen=True, slots=True)
class LeverMemory:
    """`held`: the value we set and still answer for, only meaningful while `owned`."""

    owned: bool = False
    held: LeverValue = None
    moved_at: float = float("-inf")
    trial: Trial | None = None
    quarantined_until: float = float("-inf")
    foreign: LeverValue = None
    foreign_since: float | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """A storm being handled in one pool, from engagement until every limit is off."""

    engaged_at: float
    finding_id: str
    seen_at: float
    calm_since: float | None = None
    at_floor_since: float | None = None


@dataclass(frozen=True)
class PlannerState:
    levers: Mapping[LeverKey, LeverMemory] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    # endpoint address -> when something last spoke against it, and how often it was taken out
    adverse_at: Mapping[str, float] = field(default_factory=dict)
    taken_out: Mapping[str, int] = field(default_factory=dict)
    # pool -> (time, replicas wanted) of recent cycles, for stabilisation
    wanted: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)

    def memory(self, key: LeverKey) -> LeverMemory:
        return self.levers.get(key, LeverMemory())

    def with_memory(self, key: LeverKey, memory: LeverMemory) -> PlannerState:
        return replace(self, levers={**self.levers, key: memory})

    def with_episode(self, pool: str, episode: Episode | None) -> PlannerState:
        episodes = {name: value for name, value in self.episodes.items() if name != pool}
        if episode is not None:
            episodes[pool] = episode
        return replace(self, episodes=episodes)

    def after(self, action: Action, outcome: Outcome) -> PlannerState:
        """The state once an action's outcome is known.

        Advice moves nothing but counts as said (its cool-down starts). A conflict or a failure leaves what we
        hold as it was; the next reading tells what is true.
        """
        memory = self.memory(action.key)
        if outcome.status is Status.ADVISED:
            return self.with_memory(action.key, replace(memory, moved_at=outcome.at))
        if outcome.status is not Status.APPLIED:
            return self.with_memory(action.key, replace(memory, moved_at=outcome.at))
        trial = memory.trial
        if action.undo_of is not None:
            trial = None
        elif action.expect is not None:
            trial = Trial(action, outcome.at)
        return self.with_memory(
            action.key,
            replace(
                memory,
                # as the system spells it: some round, and some take the top of the range for "off"
                owned=outcome.readback is not None,
                held=outcome.readback,
                moved_at=outcome.at,
                trial=trial,
                foreign=None,
                foreign_since=None,
            ),
        )
