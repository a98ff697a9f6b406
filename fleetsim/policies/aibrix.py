"""AIBrix PodAutoscaler, strategies KPA and APA.

pkg/controller/podautoscaler: algorithm/{kpa,apa}.go, context/context.go, autoscaler.go (pending replicas) and
podautoscaler_controller.go (stabilizeRecommendation). The cool-down is kept as its code has it, which is the reverse
of an HPA's: downwards it takes the lowest recommendation of the window, so that one low reading deepens the next
scale-down instead of preventing it, and nothing is delayed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from fleetsim.policies import pods
from fleetsim.policies.policy import PolicyInfo, Untouched
from fleetsim.policies.windows import Recent
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import Observation

RESYNC_S = 10.0
TARGET = 0.5  # of the KV cache, as in the samples
TOLERANCE = 0.1
MAX_RATE = 2.0  # up and down, of one decision
PANIC_THRESHOLD = 2.0
STABLE_S, PANIC_S = 180.0, 60.0
DOWN_COOLDOWN_S = 300.0


def rate_limited(desired: int, current: int) -> int:
    """Within half and double of the replicas there are."""
    return max(math.floor(current / MAX_RATE), min(desired, max(1, math.ceil(current * MAX_RATE))))


def kpa_replicas(total: float, current: int, target: float = TARGET) -> int:
    """Knative's rule: what there is over what one pod should have, unless that is within the tolerance."""
    if current and 1 - TOLERANCE <= total / (current * target) <= 1 + TOLERANCE:
        return current
    return rate_limited(math.ceil(total / target), current)


def panics(stable: float, panic: float) -> bool:
    """Also at a stable value of 0, as the code has it."""
    return stable <= 0 or panic / stable > PANIC_THRESHOLD


def apa_replicas(use_per_pod: float, current: int, target: float = TARGET) -> int:
    ratio = use_per_pod / target
    if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE:
        return current
    return rate_limited(math.ceil(current * ratio), current)


def pending_guard(desired: int, current: int, ready: int, use_per_pod: float, target: float = TARGET) -> int:
    """While replicas are pending: upwards they count as empty, downwards as on target."""
    pending = current - ready
    if pending <= 0 or desired == current:
        return desired
    used = use_per_pod * ready / target
    if desired > current:
        return min(desired, max(current, math.ceil(used)))
    return max(desired, min(current, math.ceil(used + pending)))


def cooled_down(recommended: Sequence[tuple[float, int]], now: float, current: int) -> int:
    """The last of `recommended` is this one. There is no window upwards (0 s); downwards the lowest of 300 s."""
    latest = recommended[-1][1]
    if latest >= current:
        return latest
    return min(replicas for time, replicas in recommended if time > now - DOWN_COOLDOWN_S)


class Aibrix(Untouched, ABC):
    """What both strategies share: pods' values averaged over those that answered, windows, guard, cool-down."""

    period_s = RESYNC_S

    def __init__(self, name: str) -> None:
        self.name = name
        self._stable = Recent(STABLE_S)
        self._panic = Recent(PANIC_S)
        self._recommended: list[tuple[float, int]] = []
        self._most_in_panic = 0

    def decide(self, seen: Observation, controls: Controls) -> None:
        ready = seen.ready
        answers = pods.engines(ready, seen.now).values()
        values = [engine.kv_usage for engine in answers if engine.kv_usage is not None]
        if not values:
            return
        mean = sum(values) / len(values)
        self._stable.add(seen.now, mean)
        self._panic.add(seen.now, mean)
        desired, why = self._recommend(seen.now, seen.wanted, len(ready))
        since = seen.now - DOWN_COOLDOWN_S
        self._recommended = [*(r for r in self._recommended if r[0] > since), (seen.now, desired)]
        replicas = pods.bounded(cooled_down(self._recommended, seen.now, seen.wanted), seen)
        if replicas != seen.wanted:
            controls.scale(self.name, replicas, why)

    @abstractmethod
    def _recommend(self, now: float, current: int, ready: int) -> tuple[int, str]:
        """Replicas and a sentence, from the windows."""


class Kpa(Aibrix):
    def _recommend(self, now: float, current: int, ready: int) -> tuple[int, str]:
        stable, panic = self._stable.mean(now) or 0.0, self._panic.mean(now) or 0.0
        desired = pending_guard(kpa_replicas(stable * ready, current), current, ready, stable)
        if not panics(stable, panic):
            self._most_in_panic = 0
            return desired, f"KV use {stable:.2f} a pod over 180 s, target {TARGET}: {desired}"
        # Panic takes the larger of both windows and never fewer than before.
        hurried = pending_guard(kpa_replicas(panic * ready, current), current, ready, panic)
        self._most_in_panic = max(self._most_in_panic or current, desired, hurried)
        return self._most_in_panic, f"panic: KV use {panic:.2f} over 60 s, {stable:.2f} over 180 s"


class Apa(Aibrix):
    def _recommend(self, now: float, current: int, ready: int) -> tuple[int, str]:
        use = self._stable.mean(now) or 0.0
        desired = pending_guard(apa_replicas(use, current), current, ready, use)
        return desired, f"KV use {use:.2f} a pod over 180 s, target {TARGET}: {desired}"


_CITATION = "AIBrix e3e10f9e (2026-08), docs Metric-based Autoscaling and pkg/controller/podautoscaler; "
_GUARD = "guard for pending replicas as of #2671"
_DEFAULTS = {
    "target": "0.5 of the KV cache (samples)",
    "resync": "10 s",
    "tolerance up, down": "0.1, 0.1",
    "max rate up, down": "2, 2",
    "cool-down up, down": "0 s, 300 s",
}
_MISSING = "averaged over the pods that answered, without correction; none: nothing"

KPA = PolicyInfo(
    name="aibrix-kpa",
    title="AIBrix KPA",
    decides_by="KV cache use over 180 s, over 60 s in panic",
    citation=_CITATION + "algorithm/kpa.go; " + _GUARD,
    defaults=_DEFAULTS | {"windows": "180 s, panic 60 s", "panic threshold": "2.0"},
    missing=_MISSING,
    simplified="the total over the pods is divided by the target, as Knative means it; the present code divides the "
    "mean of the pods and so shrinks whatever the load",
    build=lambda scenario: Kpa("aibrix-kpa"),
)
APA = PolicyInfo(
    name="aibrix-apa",
    title="AIBrix APA",
    decides_by="KV cache use over 180 s",
    citation=_CITATION + "algorithm/apa.go; " + _GUARD,
    defaults=_DEFAULTS | {"window": "180 s"},
    missing=_MISSING,
    simplified="one metric; the cool-down takes the lowest recommendation downwards, as the code has it",
    build=lambda scenario: Apa("aibrix-apa"),
)
