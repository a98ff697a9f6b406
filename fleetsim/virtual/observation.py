"""What a controller outside can know of the fleet: what its exporters say and what the cluster's API tells.

None is "not known": never scraped, family missing, NaN. Counters are as exposed: they start at 0 with each process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """One scrape of an engine. Totals are counters; sums in seconds or tokens; `kv_tokens` is the cache's size."""

    scraped_at: float
    waiting: float | None = None
    running: float | None = None
    kv_usage: float | None = None
    kv_tokens: float | None = None
    requests_finished: float | None = None
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    generation_tokens: float | None = None
    request_prompt_sum: float | None = None
    request_generation_sum: float | None = None
    ttft_sum: float | None = None
    ttft_count: float | None = None
    itl_sum: float | None = None
    itl_count: float | None = None
    preemptions: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A replica as the cluster's API shows it, with its last good scrape (None: never, or too old to be served)."""

    name: str
    state: str  # pending, warming, ready, draining, crashed
    since: float
    engine: EngineSeen | None


@dataclass(frozen=True, slots=True)
class GatewaySeen:
    """One scrape of the gateway; counters."""

    scraped_at: float
    requests: float  # attempts of clients that arrived
    first_attempts: float
    retries: float  # of clients
    answered_2xx: float
    answered_4xx: float
    answered_5xx: float
    shed: float
    active: float
    pending: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One look. `wanted` is the replica count last asked for; the gateway is None where its scrape fails."""

    now: float
    wanted: int
    minimum: int
    maximum: int
    replicas: tuple[ReplicaSeen, ...]
    gateway: GatewaySeen | None

    @property
    def ready(self) -> tuple[ReplicaSeen, ...]:
        return tuple(r for r in self.replicas if r.state == "ready")

    @property
    def coming(self) -> int:
        """Replicas asked for that do not serve yet."""
        return sum(r.state in ("pending", "warming") for r in self.replicas)
