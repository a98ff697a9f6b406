"""llm-d Workload Variant Autoscaler with one variant: it publishes wva_desired_replicas, an HPA acts on it.

docs/saturation-analyzer.md, internal/saturation (V1), internal/engines/analyzers/saturation_v2 and
internal/engines/pipeline/cost_aware_optimizer.go (V2), internal/collector/replica_metrics.go (what it reads).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetsim.policies import pods
from fleetsim.policies.behaviour import Behaviour, Limit, Rules
from fleetsim.policies.hpa import SYNC_S, external_replicas
from fleetsim.policies.policy import Untouched
from fleetsim.policies.windows import Counters, Recent, ratio
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import EngineSeen, Observation

RECONCILE_S = 60.0
PEAK_S = 60.0  # max_over_time(...[1m])
LENGTHS_S = 300.0  # rate(...[5m])
SHIPPED = Rules(240.0, (Limit("pods", 10, 150.0),))  # of the HPA it comes with, both directions


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """One replica: peaks of a minute, mean lengths of five. What could not be read is 0, as the collector has it."""

    kv_usage: float
    queue: float
    kv_tokens: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0


class Analyzer(Protocol):
    """`current` replicas there should be, `ready` of them. The result is the wanted count and a sentence."""

    def target(self, replicas: list[ReplicaMetrics], current: int, ready: int) -> tuple[int, str]: ...


class _Replica:
    """Samples of one replica, at every sync of the HPA: about as often as Prometheus scrapes."""

    __slots__ = ("_kv", "_lengths", "_queue", "_tokens")

    def __init__(self) -> None:
        self._kv = Recent(PEAK_S)
        self._queue = Recent(PEAK_S)
        self._lengths = Counters(LENGTHS_S)
        self._tokens = 0.0

    def add(self, now: float, engine: EngineSeen) -> None:
        if engine.kv_usage is not None:
            self._kv.add(now, engine.kv_usage)
        if engine.waiting is not None:
            self._queue.add(now, engine.waiting)
        self._tokens = engine.kv_tokens or self._tokens
        self._lengths.add(now, (engine.request_prompt_sum, engine.request_generation_sum, engine.requests_finished))

    def metrics(self, now: float) -> ReplicaMetrics | None:
        kv, queue = self._kv.peak(now), self._queue.peak(now)
        if kv is None and queue is None:
            return None
        finished = self._lengths.increase(2)
        return ReplicaMetrics(
            kv or 0.0,
            queue or 0.0,
            self._tokens,
            ratio(self._lengths.increase(0), finished) or 0.0,
            ratio(self._lengths.increase(1), finished) or 0.0,
        )


class Wva(Untouched):
    """Samples and HPA every 15 s, the analyzer every 60 s."""

    period_s = SYNC_S

    def __init__(self, name: str, analyzer: Analyzer) -> None:
        self.name = name
        self._analyzer = analyzer
        self._behaviour = Behaviour(SHIPPED, SHIPPED)
        self._replicas: dict[str, _Replica] = {}
        self._due = 0.0
        self._desired: int | None = None
        self._why = ""

    def decide(self, seen: Observation, controls: Controls) -> None:
        ready = pods.engines(seen.ready, seen.now)
        self._replicas = {name: self._replicas.get(name) or _Replica() for name in ready}
        for name, engine in ready.items():
            self._replicas[name].add(seen.now, engine)
        if seen.now >= self._due:
            self._due = seen.now + RECONCILE_S
            self._reconcile(seen)
        if self._desired is None:
            return
        asked = external_replicas(self._desired, pods.status_replicas(seen), 1.0)
        replicas = self._behaviour.settle(seen.now, seen.wanted, asked, seen.minimum, seen.maximum)
        if replicas != seen.wanted:
            controls.scale(self.name, replicas, self._why)

    def _reconcile(self, seen: Observation) -> None:
        found = [m for r in self._replicas.values() if (m := r.metrics(seen.now)) is not None]
        if not found:
            return  # metrics unavailable: what was published stays
        if self._desired is not None and self._desired != seen.wanted:
            return  # on the way: the desired count is kept until it is the current one
        target, self._why = self._analyzer.target(found, seen.wanted, len(seen.ready))
        self._desired = pods.bounded(target, seen)


HPA_DEFAULTS = {
    "reconcile": "60 s",
    "kvCacheThreshold": "0.80",
    "queueLengthThreshold": "5",
    "shipped HPA": "sync 15 s, windows 240 s up and down, 10 pods in 150 s",
}
MISSING = (
    "a replica with neither metric is left out, one of two missing reads as 0; "
    "no replica with metrics: what was published stays"
)
