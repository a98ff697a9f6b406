"""WVA saturation analyzer V2: demand and capacity in tokens of KV cache, bounded by memory or by compute."""

from __future__ import annotations

import math
from collections import deque

from fleetsim.policies.policy import PolicyInfo
from fleetsim.policies.wva import HPA_DEFAULTS, MISSING, ReplicaMetrics, Wva

KV_THRESHOLD, QUEUE_THRESHOLD = 0.80, 5.0
SCALE_UP_THRESHOLD, SCALE_DOWN_BOUNDARY = 0.85, 0.70
HISTORY = 10  # observations of a compute bound


def output_bucket(output_tokens: float) -> str:
    """The compute bound is remembered by class of output length."""
    return "short" if output_tokens < 100 else "medium" if output_tokens < 500 else "long"


def derived_bound(batched_tokens: int, max_num_seqs: int, input_tokens: float, output_tokens: float) -> float | None:
    """Tokens that the steady batch min(B O / (I + O), S) holds at half of its output; None without an output length."""
    if output_tokens <= 0:
        return None
    sequences = min(batched_tokens * output_tokens / (input_tokens + output_tokens), max_num_seqs)
    return math.floor(sequences * (input_tokens + output_tokens / 2)) or None


def median(values: list[float]) -> float:
    """Of an even number the mean of both, in whole tokens."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2


def replicas_for(demand: float, capacity: float, current: int, ready: int) -> int:
    """Add what is required at 85 % of the supply that is there or coming; take away what is spare at 70 % of it."""
    required = demand / SCALE_UP_THRESHOLD - current * capacity
    if required > 0:
        return current + math.ceil(required / capacity)
    spare = ready * capacity - demand / SCALE_DOWN_BOUNDARY
    return max(1, current - math.floor(spare / capacity)) if spare > 0 else current


class SaturationV2:
    def __init__(self, batched_tokens: int, max_num_seqs: int) -> None:
        self._batched_tokens = batched_tokens
        self._max_num_seqs = max_num_seqs
        self._observed: dict[str, deque[float]] = {}

    def target(self, replicas: list[ReplicaMetrics], current: int, ready: int) -> tuple[int, str]:
        """A replica that does not tell the size of its cache has no part in it."""
        sized = [r for r in replicas if r.kv_tokens > 0]
        if not sized:
            return current, "no replica tells the size of its KV cache"
        capacity = median([self.capacity(r) for r in sized])
        demand = sum(self._in_use(r) + r.queue * r.input_tokens for r in sized)
        if capacity <= 0:
            return current, "no capacity known"
        target = replicas_for(demand, capacity, current, min(ready, current))
        return target, f"demand of {demand:.0f} tokens, {capacity:.0f} a replica, {ready} ready of {current}"

    def capacity(self, replica: ReplicaMetrics) -> float:
        """Tokens a replica can hold in use: min(k1, k2). A full queue shows k2, and it is remembered."""
        memory = math.floor(replica.kv_tokens * KV_THRESHOLD)
        bucket = output_bucket(replica.output_tokens)
        used = self._in_use(replica)
        if replica.queue >= QUEUE_THRESHOLD and used > 0:
            self._observed.setdefault(bucket, deque(maxlen=HISTORY)).append(used)
            return min(memory, used)
        if history := self._observed.get(bucket):
            return min(memory, math.floor(sum(history) / len(history)))
        derived = derived_bound(self._batched_tokens, self._max_num_seqs, replica.input_tokens, replica.output_tokens)
        return memory if derived is None else min(memory, derived)

    @staticmethod
    def _in_use(replica: ReplicaMetrics) -> float:
        return math.floor(replica.kv_usage * replica.kv_tokens)


INFO = PolicyInfo(
    name="wva-v2",
    title="WVA, saturation V2",
    decides_by="tokens in use and queued over the median capacity in tokens",
    citation="llm-d Workload Variant Autoscaler b08b1c77 (2026-02), internal/engines/analyzers/saturation_v2",
    defaults=HPA_DEFAULTS | {"scaleUpThreshold": "0.85", "scaleDownBoundary": "0.70", "k2 history": "10"},
    missing=MISSING + "; a cache of unknown size leaves its replica out",
    simplified="one variant; no scheduler queue (the original does not fill it either); histories do not expire; "
    "the published count stays in the bounds",
    build=lambda scenario: Wva(
        "wva-v2",
        SaturationV2(scenario.hardware.profile.max_num_batched_tokens, scenario.hardware.profile.max_num_seqs),
    ),
)
