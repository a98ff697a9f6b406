"""Which endpoint takes a request: Envoy's policies, and consistent hashing of prompt beginnings."""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, Protocol

from fleetsim.virtual.attempt import Attempt, Port

Role = Literal["serve", "prefill", "decode"]
Policy = Literal["least_request", "round_robin", "prefix"]

FULL_WEIGHT = 100.0
BOUNDED_LOAD = 1.25  # a hashed endpoint takes at most so many times the mean of requests in flight
_MASK = (1 << 64) - 1


class Endpoint:
    """A member of the gateway's cluster: state, outlier detection's memory and counters since it was added."""

    __slots__ = (
        "active",
        "address",
        "connect_failures",
        "draining",
        "ejected_at",  # by outlier detection, None: it is not
        "ejections",  # multiplier of the next ejection's length
        "failures_in_row",
        "interval_failures",
        "interval_requests",
        "labels",
        "name",
        "port",
        "role",
        "rq_error",
        "rq_success",
        "rq_timeout",
        "rq_total",
        "weight",
    )

    def __init__(self, name: str, address: str, port: Port, role: Role = "serve") -> None:
        self.name = name
        self.address = address
        self.port = port
        self.role = role
        self.weight = FULL_WEIGHT
        self.draining = False
        self.ejected_at: float | None = None
        self.active = self.ejections = 0
        self.failures_in_row = self.interval_requests = self.interval_failures = 0
        self.rq_total = self.rq_success = self.rq_error = self.rq_timeout = self.connect_failures = 0
        self.labels = f'{{envoy_cluster_name="llm",envoy_endpoint_address="{address}"}}'

    @property
    def healthy(self) -> bool:
        """Whether new requests may be sent to it. That its process died is not known here."""
        return self.weight > 0 and not self.draining and self.ejected_at is None


class Balancer(Protocol):
    """Made anew whenever members, weights or health change, from the healthy endpoints (at least one)."""

    endpoints: Sequence[Endpoint]

    def pick(self, attempt: Attempt) -> Endpoint: ...


def balancer(policy: Policy, endpoints: Sequence[Endpoint], rng: random.Random) -> Balancer:
    if policy == "round_robin":
        return RoundRobin(endpoints)
    if policy == "prefix":
        return PrefixHash(endpoints, rng)
    return LeastRequest(endpoints, rng)


class Schedule:
    """Weighted turns, earliest deadline first: who is picked comes again after 1/weight (Envoy's EDF scheduler).

    The weight is asked for at each pick, so it may follow the endpoint's load.
    """

    def __init__(self, endpoints: Sequence[Endpoint], weight: Callable[[Endpoint], float]) -> None:
        self._weight = weight
        self._picks = len(endpoints)
        self._heap = [(1 / weight(endpoint), i, endpoint) for i, endpoint in enumerate(endpoints)]
        heapq.heapify(self._heap)

    def next(self) -> Endpoint:
        deadline, _, endpoint = self._heap[0]
        self._picks += 1
        heapq.heapreplace(self._heap, (deadline + 1 / self._weight(endpoint), self._picks, endpoint))
        return endpoint


class RoundRobin:
    """Envoy's ROUND_ROBIN: turns in proportion to the weights, spread out."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = endpoints
        self._schedule = Schedule(endpoints, lambda endpoint: endpoint.weight)

    def pick(self, attempt: Attempt) -> Endpoint:
        return self._schedule.next()


class LeastRequest:
    """Envoy's LEAST_REQUEST: with equal weights the less busy of two random endpoints (drawn with replacement), else
    turns by weight / (requests in flight + 1).
    """

    def __init__(self, endpoints: Sequence[Endpoint], rng: random.Random) -> None:
        self.endpoints = endpoints
        self._count = len(endpoints)
        self._random = rng.random
        equal = all(endpoint.weight == endpoints[0].weight for endpoint in endpoints)
        self._schedule = None if equal else Schedule(endpoints, lambda e: e.weight / (e.active + 1))

    def pick(self, attempt: Attempt) -> Endpoint:
        if self._schedule is not None:
            return self._schedule.next()
        endpoints, count, draw = self.endpoints, self._count, self._random
        first, second = endpoints[int(draw() * count)], endpoints[int(draw() * count)]
        return second if second.active < first.active else first


class PrefixHash:
    """Consistent hashing of a prompt's first prefix chunk with bounded loads (Mirrokni et al. 2016; KubeAI's and
    Envoy's `hash_balance_factor` 125): the first endpoint clockwise with less than 1.25 times the mean in flight.

    Prompts without a prefix go by least request.
    """

    def __init__(self, endpoints: Sequence[Endpoint], rng: random.Random) -> None:
        self.endpoints = endpoints
        self._least_request = LeastRequest(endpoints, rng)
        ring = [
            (point, i)
            for i, endpoint in enumerate(endpoints)
            for point in _points(endpoint.name)[: max(1, round(endpoint.weight))]
        ]
        ring.sort()
        self._hashes = [point for point, _ in ring]
        self._owners = [endpoints[i] for _, i in ring]

    def pick(self, attempt: Attempt) -> Endpoint:
        if not attempt.prefix:
            return self._least_request.pick(attempt)
        in_flight = sum([endpoint.active for endpoint in self.endpoints])
        bound = math.ceil(BOUNDED_LOAD * (in_flight + 1) / len(self.endpoints))
        owners, size = self._owners, len(self._owners)
        at = bisect_right(self._hashes, _mix(attempt.prefix[0][0]))
        # Not all can be at the bound, which is above the mean.
        while (endpoint := owners[at % size]).active >= bound:
            at += 1
        return endpoint


def _mix(key: int) -> int:
    """A key spread over 64 bits (the finaliser of splitmix64)."""
    key = (key + 0x9E3779B97F4A7C15) & _MASK
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
    return key ^ (key >> 31)


@lru_cache(maxsize=1024)
def _points(name: str) -> tuple[int, ...]:
    """Places of an endpoint on the ring, one a percent of weight."""
    return tuple(
        int.from_bytes(blake2b(f"{name}-{i}".encode(), digest_size=8).digest()) for i in range(int(FULL_WEIGHT))
    )
