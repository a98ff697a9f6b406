"""Kubernetes HorizontalPodAutoscaler v2 with an AverageValue target over the pods' own metric.

Kubernetes, pkg/controller/podautoscaler/replica_calculator.go (calcPlainMetricReplicas) and horizontal.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fleetsim.policies import pods
from fleetsim.policies.behaviour import Behaviour
from fleetsim.policies.policy import PolicyInfo, Untouched
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import EngineSeen, Observation

SYNC_S = 15.0
TOLERANCE = 0.1


def within(ratio: float, tolerance: float = TOLERANCE) -> bool:
    return 1.0 - tolerance <= ratio <= 1.0 + tolerance


def pods_replicas(values: Sequence[float], missing: int, unready: int, current: int, target: float) -> int | None:
    """Replicas for a metric of the pods, or None: not one pod has it, the HPA then does nothing.

    `values`: of the pods that have one. `missing`: running pods without; they count as on target when the others say
    down, as 0 when they say up. `unready`: pods not scheduled yet; they count as 0 when the others say up.
    """
    if not values:
        return None
    total, counted = sum(values), len(values)
    ratio = total / (counted * target)
    unready_count = unready if ratio > 1.0 else 0
    if not missing and not unready_count:
        return current if within(ratio) else math.ceil(ratio * counted)
    if ratio < 1.0:
        total += missing * target
    counted += missing + unready_count
    corrected = total / (counted * target)
    if within(corrected) or (ratio < 1.0) != (corrected < 1.0):
        return current
    replicas = math.ceil(corrected * counted)
    # The corrected count of pods must not turn the direction either.
    turned = (corrected < 1.0 and replicas > current) or (corrected > 1.0 and replicas < current)
    return current if turned else replicas


def external_replicas(total: float, status_replicas: int, target: float) -> int:
    """Replicas for a metric of no pod in particular, with an AverageValue target."""
    if status_replicas and within(total / (target * status_replicas)):
        return status_replicas
    return math.ceil(total / target)


class Hpa(Untouched):
    period_s = SYNC_S

    def __init__(self, name: str, metric: Callable[[EngineSeen], float | None], target: float, what: str) -> None:
        self.name = name
        self._metric = metric
        self._target = target
        self._what = what
        self._behaviour = Behaviour()

    def decide(self, seen: Observation, controls: Controls) -> None:
        counted = [r for r in seen.replicas if r.state != "draining"]
        running = [r for r in counted if r.state != "pending"]
        values = [v for engine in pods.engines(running, seen.now).values() if (v := self._metric(engine)) is not None]
        desired = pods_replicas(
            values, len(running) - len(values), len(counted) - len(running), seen.wanted, self._target
        )
        if desired is None:
            return
        replicas = self._behaviour.settle(seen.now, seen.wanted, desired, seen.minimum, seen.maximum)
        if replicas != seen.wanted:
            mean = sum(values) / len(values)
            controls.scale(self.name, replicas, f"{self._what} {mean:.2f} a pod, target {self._target:g}: {desired}")


def on_queue(name: str = "hpa-queue") -> Hpa:
    return Hpa(name, lambda engine: engine.waiting, 5.0, "waiting requests")


def on_kv(name: str = "hpa-kv") -> Hpa:
    return Hpa(name, lambda engine: engine.kv_usage, 0.6, "KV cache use")


_CITATION = (
    "Kubernetes, Horizontal Pod Autoscaling (autoscaling/v2) and pkg/controller/podautoscaler/replica_calculator.go; "
)
_DEFAULTS = {
    "sync period": "15 s",
    "tolerance": "0.1",
    "scale up": "no window, 4 pods or 100 % in 15 s",
    "scale down": "window 300 s, 100 % in 15 s",
}
_MISSING = "no pod has the metric: nothing; some lack it: on target for a scale-down, 0 for a scale-up"
_SIMPLIFIED = "one metric; a crashed pod counts as running without the metric"

QUEUE = PolicyInfo(
    name="hpa-queue",
    title="HPA on waiting requests",
    decides_by="mean of vllm:num_requests_waiting over the pods",
    citation=_CITATION + "target 5 as in vLLM production-stack's autoscaling sample and WVA's queueLengthThreshold",
    defaults={"averageValue": "5"} | _DEFAULTS,
    missing=_MISSING,
    simplified=_SIMPLIFIED,
    build=lambda scenario: on_queue(),
)
KV = PolicyInfo(
    name="hpa-kv",
    title="HPA on KV cache use",
    decides_by="mean of vllm:kv_cache_usage_perc over the pods",
    citation=_CITATION + "target 60 % as in llm-d's KEDA recipe (llm-d-autoscaling#1517)",
    defaults={"averageValue": "0.6"} | _DEFAULTS,
    missing=_MISSING,
    simplified=_SIMPLIFIED,
    build=lambda scenario: on_kv(),
)
