"""KEDA on waiting requests: a Prometheus trigger that feeds an HPA's external metric.

Above one replica KEDA decides nothing: the HPA asks its metrics server at every sync, and that asks Prometheus
(`useCachedMetrics` is off by default). Polling interval and cool-down are for the way between 0 and 1 only.
"""

from __future__ import annotations

from fleetsim.policies import pods
from fleetsim.policies.behaviour import Behaviour
from fleetsim.policies.hpa import SYNC_S, external_replicas
from fleetsim.policies.policy import PolicyInfo, Untouched
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import Observation

THRESHOLD = 5.0


class KedaWaiting(Untouched):
    name = "keda-waiting"
    period_s = SYNC_S

    def __init__(self) -> None:
        self._behaviour = Behaviour()

    def decide(self, seen: Observation, controls: Controls) -> None:
        engines = pods.engines(seen.replicas, seen.now).values()
        # sum() over no series is no answer, and `ignoreNullValues` (default true) makes 0 of that.
        total = sum(engine.waiting for engine in engines if engine.waiting is not None)
        desired = external_replicas(total, pods.status_replicas(seen), THRESHOLD)
        replicas = self._behaviour.settle(seen.now, seen.wanted, desired, seen.minimum, seen.maximum)
        if replicas != seen.wanted:
            controls.scale(self.name, replicas, f"{total:g} requests wait, {THRESHOLD:g} a replica: {desired}")


INFO = PolicyInfo(
    name="keda-waiting",
    title="KEDA on waiting requests",
    decides_by="sum of vllm:num_requests_waiting by a Prometheus trigger",
    citation="KEDA 2.18, Scaling Deployments and Prometheus scaler; vLLM production-stack a6c01db0 (2026-08), "
    "autoscaling-keda: threshold 5",
    defaults={
        "threshold": "5",
        "ignoreNullValues": "true",
        "pollingInterval, cooldownPeriod": "30 s, 300 s (between 0 and 1 replicas only)",
        "HPA": "sync 15 s, tolerance 0.1, default behaviour",
    },
    missing="series that are gone count as 0, and with none left the whole does: it scales to the minimum",
    simplified="the sample's bare query fails with two pods (one series is expected): sum() is put around it",
    build=lambda scenario: KedaWaiting(),
)
