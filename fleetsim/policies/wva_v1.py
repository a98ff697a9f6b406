"""WVA saturation analyzer V1: spare capacity of the replicas that are not saturated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetsim.policies.policy import PolicyInfo
from fleetsim.policies.wva import HPA_DEFAULTS, MISSING, ReplicaMetrics, Wva

KV_THRESHOLD, QUEUE_THRESHOLD = 0.80, 5.0
KV_SPARE_TRIGGER, QUEUE_SPARE_TRIGGER = 0.10, 3.0


@dataclass(frozen=True, slots=True)
class Spare:
    """Mean spare KV use and queue of `healthy` replicas; 0 where none is."""

    healthy: int
    kv: float
    queue: float

    @property
    def scarce(self) -> bool:
        return self.kv < KV_SPARE_TRIGGER or self.queue < QUEUE_SPARE_TRIGGER

    @property
    def dispensable(self) -> bool:
        """Whether the others would keep enough spare with one replica's load spread over them."""
        if self.healthy < 2:
            return False
        growth = self.healthy / (self.healthy - 1)
        kv = KV_THRESHOLD - (KV_THRESHOLD - self.kv) * growth
        queue = QUEUE_THRESHOLD - (QUEUE_THRESHOLD - self.queue) * growth
        return kv >= KV_SPARE_TRIGGER and queue >= QUEUE_SPARE_TRIGGER


def spare(replicas: Sequence[ReplicaMetrics]) -> Spare:
    healthy = [r for r in replicas if r.kv_usage < KV_THRESHOLD and r.queue < QUEUE_THRESHOLD]
    if not healthy:
        return Spare(0, 0.0, 0.0)
    return Spare(
        len(healthy),
        sum(KV_THRESHOLD - r.kv_usage for r in healthy) / len(healthy),
        sum(QUEUE_THRESHOLD - r.queue for r in healthy) / len(healthy),
    )


class SaturationV1:
    def target(self, replicas: list[ReplicaMetrics], current: int, ready: int) -> tuple[int, str]:
        """From the replicas that report: one more where spare is scarce and none is pending, one fewer if safe."""
        found = spare(replicas)
        reporting = len(replicas)
        why = f"{found.healthy} of {reporting} unsaturated, spare KV {found.kv:.2f}, spare queue {found.queue:.1f}"
        if found.scarce:
            return (reporting + 1 if current <= ready else reporting), why
        return (reporting - 1 if found.dispensable and reporting > 1 else reporting), why


INFO = PolicyInfo(
    name="wva-v1",
    title="WVA, saturation V1",
    decides_by="spare KV cache and queue of unsaturated replicas, peaks of a minute",
    citation="llm-d Workload Variant Autoscaler b08b1c77 (2026-02), docs/saturation-analyzer.md",
    defaults=HPA_DEFAULTS | {"kvSpareTrigger": "0.10", "queueSpareTrigger": "3"},
    missing=MISSING,
    simplified="one variant, so no choice by cost; no scaling to or from 0; the published count stays in the bounds",
    build=lambda scenario: Wva("wva-v1", SaturationV1()),
)
