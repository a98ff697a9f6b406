"""The gateway's cluster: who is in it, with what weight and health, and whose turn it is."""

from __future__ import annotations

import random
from collections.abc import Callable

from fleetsim.virtual.attempt import Attempt, Port
from fleetsim.virtual.balancing import FULL_WEIGHT, Balancer, Endpoint, Policy, Role, balancer


class Members:
    """Endpoints by name. With any of role prefill the pool is disaggregated: an attempt goes to one of those (stage 0),
    then to one of role decode (stage 1).
    """

    def __init__(self, policy: Policy, rng: random.Random, changed: Callable[[], None]) -> None:
        self._policy = policy
        self._rng = rng
        self._changed = changed
        self.endpoints: dict[str, Endpoint] = {}
        self.disaggregated = False
        self._first: Balancer | None = None
        self._second: Balancer | None = None  # of stage 1

    def add(self, name: str, address: str, port: Port, role: Role) -> None:
        if name in self.endpoints:
            raise ValueError(f"expected a new endpoint, found {name!r} again: remove it first")
        self.endpoints[name] = Endpoint(name, address, port, role)
        self.renew()

    def remove(self, name: str) -> None:
        """No new requests for it; those it has go on."""
        del self.endpoints[name]
        self.renew()

    def set_draining(self, name: str, draining: bool) -> None:
        self.endpoints[name].draining = draining
        self.renew()

    def weight(self, name: str) -> float | None:
        endpoint = self.endpoints.get(name)
        return None if endpoint is None else endpoint.weight

    def set_weight(self, name: str, weight: float) -> None:
        if name not in self.endpoints or not 0 <= weight <= FULL_WEIGHT:
            raise ValueError(f"expected an endpoint and a weight of 0 to 100, found {name!r} and {weight}: correct it")
        self.endpoints[name].weight = weight
        self.renew()

    def renew(self) -> None:
        """To be called when members, weights or health changed."""
        self.disaggregated = any(endpoint.role == "prefill" for endpoint in self.endpoints.values())
        self._first = self._balancer("prefill" if self.disaggregated else "serve")
        self._second = self._balancer("decode") if self.disaggregated else None
        self._changed()

    def pick(self, attempt: Attempt) -> Endpoint | None:
        """The attempt's next endpoint; None if none is healthy."""
        chosen = self._second if attempt.stage else self._first
        return None if chosen is None else chosen.pick(attempt)

    def pick_below(self, attempt: Attempt, room: int) -> Endpoint | None:
        """The balancer's choice if it has fewer than `room` requests in flight, else the least busy, else None."""
        chosen = self._second if attempt.stage else self._first
        if chosen is None:
            return None
        endpoint = chosen.pick(attempt)
        if endpoint.active >= room:
            endpoint = min(chosen.endpoints, key=lambda e: e.active)
        return endpoint if endpoint.active < room else None

    def _balancer(self, role: Role) -> Balancer | None:
        healthy = [e for e in self.endpoints.values() if e.role == role and e.healthy]
        return balancer(self._policy, healthy, self._rng) if healthy else None
