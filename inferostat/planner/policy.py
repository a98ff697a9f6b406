"""What the operator allows: modes, bounds and paces per pool and lever. Plain values with safe defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from actuators.model import Lever
from analyzers.model import PoolSettings
from inferostat.planner.model import Mode


@dataclass(frozen=True, slots=True)
class LeverPolicy:
    """Bounds and pace of one lever. `mode` None takes the pool's.

    `verify_within_s`: by when an action must have shown its effect. `quarantine_s`: how long a lever that
    showed none is left alone.
    """

    mode: Mode | None = None
    minimum: float | None = None
    maximum: float | None = None
    cooldown_s: float = 30.0
    verify_within_s: float = 60.0
    quarantine_s: float = 300.0


@dataclass(frozen=True, slots=True)
class StormPolicy:
    """The storm programme: hold concurrency at what drains in time, then give it back.

    `queue_share_first_token`/`queue_share_answer`: share of the client's timeout that queueing may use (f).
    `floor_requests`: the limit never goes below, so that the pool can prove it recovers.
    `raise_per_s`: growth of the limit while the queue is short. `off_at_batches`: the limit is removed above
    this many full batches. Values: rescue of a real storm on real Envoy over seeds and loads, see benchmarks.
    """

    queue_share_first_token: float = 1 / 3
    queue_share_answer: float = 1 / 5
    calm_share: float = 0.6
    floor_requests: float = 8.0
    raise_per_s: float = 1.05
    off_at_batches: float = 4.0
    drain_share: float = 0.7
    admission_raise_points_per_s: float = 5.0
    retry_budget_percent: float = 20.0
    calm_before_release_s: float = 10.0


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """Weights: how far and how fast. `max_out_share`: of a pool's endpoints that may be out at once."""

    max_out_share: float = 0.3
    cut_factor: float = 0.5
    minimum_weight: float = 10.0
    restore_after_s: float = 30.0
    first_weight_back: float = 25.0
    sure_enough: float = 0.8
    outlier_sure_enough: float = 0.6


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Replicas: `utilisation` of learnt capacity to plan for; `inflight_per_replica` where users prefer that.

    Defaults follow HPA v2 where it has them (tolerance 10 %, scale-down window 300 s).
    """

    utilisation: float = 0.85
    tolerance: float = 0.1
    up_stabilisation_s: float = 15.0
    down_stabilisation_s: float = 300.0
    down_margin: float = 0.7
    down_step: float = 1.0
    up_step_share: float = 1.0
    up_step_least: float = 4.0
    ready_within_s: float = 600.0
    inflight_per_replica: float | None = None


DEFAULT_LEVERS: Mapping[Lever, LeverPolicy] = {
    Lever.BREAKER: LeverPolicy(minimum=8.0, cooldown_s=10.0),
    Lever.ADMISSION: LeverPolicy(minimum=5.0, maximum=100.0, cooldown_s=10.0),
    Lever.RETRY_BUDGET: LeverPolicy(minimum=0.0, maximum=100.0, cooldown_s=10.0),
    Lever.WEIGHT: LeverPolicy(minimum=0.0, maximum=100.0, cooldown_s=20.0, verify_within_s=45.0),
    Lever.SCALE: LeverPolicy(minimum=1.0, cooldown_s=30.0, verify_within_s=600.0),
    Lever.DRAIN: LeverPolicy(minimum=0.0, maximum=1.0),
    Lever.WAKE: LeverPolicy(minimum=0.0, maximum=1.0),
}


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    mode: Mode = Mode.ADVISE
    levers: Mapping[Lever, LeverPolicy] = field(default_factory=dict)
    storm: StormPolicy = StormPolicy()
    routing: RoutingPolicy = RoutingPolicy()
    scaling: ScalingPolicy = ScalingPolicy()
    settings: PoolSettings = field(default_factory=PoolSettings)

    def lever(self, lever: Lever) -> LeverPolicy:
        return self.levers.get(lever, DEFAULT_LEVERS[lever])

    def mode_of(self, lever: Lever) -> Mode:
        own = self.lever(lever).mode
        return self.mode if own is None else own


@dataclass(frozen=True, slots=True)
class Policy:
    pools: Mapping[str, PoolPolicy] = field(default_factory=dict)
    paused: bool = False

    def pool(self, name: str) -> PoolPolicy:
        return self.pools.get(name, PoolPolicy())

    def advising(self) -> Policy:
        """The same policy with no lever in mode act."""
        return replace(self, pools={name: _advising(pool) for name, pool in self.pools.items()})


def _advising(pool: PoolPolicy) -> PoolPolicy:
    levers = {
        lever: replace(item, mode=Mode.ADVISE) if item.mode is Mode.ACT else item for lever, item in pool.levers.items()
    }
    return replace(pool, mode=Mode.ADVISE if pool.mode is Mode.ACT else pool.mode, levers=levers)
