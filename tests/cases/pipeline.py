"""History, analyzers and planner over a case's frames; lever values are what the planner set last."""

from __future__ import annotations

from dataclasses import dataclass, field

from actuators.model import Action, Lever, LeverKey, LeverReading, LeverValue, Outcome, Status
from analyzers.model import PoolSettings
from collector.model import Frame
from inferostat.planner import Decision, Mode, PlannerState, Policy, PoolPolicy, ScalingPolicy, decide
from tests.analyzers.frames import Loop

POOL = "default"


@dataclass
class Pipeline:
    """One pool in mode act. `replicas` None: there is no scale lever."""

    replicas: float | None
    addresses: tuple[str, ...] = ("ep",)
    settings: PoolSettings = field(default_factory=PoolSettings)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    interval_s: float = 15.0

    def __post_init__(self) -> None:
        self.loop = Loop(self.settings, self.interval_s)
        self.state = PlannerState()
        self.actions: list[Action] = []
        self.values: dict[LeverKey, LeverValue] = {
            LeverKey(lever, POOL, POOL): None for lever in (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)
        }
        for address in self.addresses:
            self.values[LeverKey(Lever.WEIGHT, POOL, address)] = 100.0
        if self.replicas is not None:
            self.values[LeverKey(Lever.SCALE, POOL, POOL)] = self.replicas

    def tick(self, frame: Frame) -> Decision:
        analysis = self.loop.tick(frame)
        readings = [
            LeverReading(key, True, value, ready=int(value or 0) if key.lever is Lever.SCALE else None)
            for key, value in self.values.items()
        ]
        pool = PoolPolicy(mode=Mode.ACT, settings=self.settings, scaling=self.scaling)
        decision = decide(analysis, frame, readings, Policy({POOL: pool}), self.state, frame.at)
        self.state = decision.state
        for action in decision.actions:
            self.values[action.key] = action.after
            self.actions.append(action)
            self.state = self.state.after(action, Outcome(action.id, frame.at, Status.APPLIED, action.after))
        return decision

    def moves(self, lever: Lever) -> list[tuple[float, LeverValue]]:
        """(time, new value) of every move of a lever, in order."""
        return [(action.at, action.after) for action in self.actions if action.key.lever is lever]


__all__ = ["POOL", "Pipeline"]
