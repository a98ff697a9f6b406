"""One pool as the planner sees it in one cycle: measures, findings and lever readings by short names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actuators.model import Lever, LeverKey, LeverReading
from analyzers.model import Analysis, Finding, PoolSettings, Scope, ScopeKind
from collector.model import Endpoint, Frame
from inferostat.planner.policy import PoolPolicy

READY_REPLICAS = "ready_replicas"


@dataclass(frozen=True)
class Situation:
    pool: str
    now: float
    frame: Frame
    analysis: Analysis
    readings: Mapping[LeverKey, LeverReading]
    policy: PoolPolicy

    @property
    def settings(self) -> PoolSettings:
        return self.policy.settings

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The pool's endpoints in the order of the topology."""
        pool = self.frame.topology.pools.get(self.pool)
        return tuple(self.frame.topology.endpoints[name] for name in pool.endpoints) if pool else ()

    def key(self, lever: Lever, target: str | None = None) -> LeverKey:
        return LeverKey(lever, self.pool, self.pool if target is None else target)

    def reading(self, lever: Lever, target: str | None = None) -> LeverReading:
        key = self.key(lever, target)
        return self.readings.get(key, LeverReading(key, known=False, reason="no backend reads this lever"))

    def measure(self, name: str, endpoint: str | None = None) -> float | None:
        """A measure of the pool, or of one of its endpoints; None where it is unknown."""
        if name == READY_REPLICAS:
            ready = self.reading(Lever.SCALE).ready
            return None if ready is None else float(ready)
        scope = Scope(ScopeKind.POOL, self.pool) if endpoint is None else Scope(ScopeKind.ENDPOINT, endpoint)
        return self.analysis.measure(name, scope)

    def finding(self, *slugs: str, endpoint: str | None = None) -> Finding | None:
        """The first finding of these slugs on the pool, or on one of its endpoints."""
        scope = Scope(ScopeKind.POOL, self.pool) if endpoint is None else Scope(ScopeKind.ENDPOINT, endpoint)
        for slug in slugs:
            found = self.analysis.find(slug, scope)
            if found is not None:
                return found
        return None
