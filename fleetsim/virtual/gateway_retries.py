"""The gateway's own retries: how many at once, and how long each waits."""

from __future__ import annotations

import random

from fleetsim import settings
from fleetsim.virtual.envoy_stats import Sent
from fleetsim.virtual.gateway_limits import Limits

# Before retry n Envoy waits a random time in [0, (2^n - 1) x 25 ms), at most 250 ms (documentation of
# x-envoy-max-retries, "fully jittered exponential back-off").
BASE_S = 0.025
MAX_S = 0.25


class Retries:
    """Envoy's retry budget: `percent` of the requests in flight and pending, but `minimum` may always be at once.

    A request counts from the decision to retry it to its end, its back-off included.
    """

    __slots__ = ("_limits", "_minimum", "_most", "_random", "active")

    def __init__(self, options: settings.Gateway, limits: Limits, rng: random.Random) -> None:
        self._limits = limits
        self._minimum = options.retry_budget_minimum
        self._most = options.retries
        self._random = rng.random
        self.active = 0

    def full(self, in_flight: int) -> bool:
        percent = self._limits.own_retry_percent
        return percent is not None and self.active >= max(self._minimum, percent / 100 * in_flight)

    def grant_s(self, tries: int, in_flight: int, sent: Sent) -> float | None:
        """The back-off before another try of a request that had so many; None: it gets none. Counted in `sent`."""
        if tries > self._most:
            sent.retry_limit_exceeded += 1
            return None
        if tries == 1:
            if self.full(in_flight):
                sent.retry_overflow += 1
                return None
            self.active += 1
        sent.retries += 1
        longest_s: float = min(BASE_S * (2**tries - 1), MAX_S)
        return self._random() * longest_s
