"""What the gateway turns away before it looks for an endpoint: shed routes and Envoy's admission-control filter."""

from __future__ import annotations

import math
import random
from collections import deque

from fleetsim import settings
from fleetsim.virtual.attempt import SHED_RETRY_AFTER_S
from fleetsim.virtual.moves import LIMITS

SHED_ALL: dict[str, str] = {"retry-after": f"{SHED_RETRY_AFTER_S:g}"}
SHED_RETRY: dict[str, str] = {**SHED_ALL, "x-should-retry": "false"}


class Limits:
    """The levers as the embedded fleet's Envoy offers them (fleetsim.envoy_bootstrap, actuators' envoy runtime keys).

    breaker: requests in flight; admission: percent let in; retry_budget: percent of the clients' retries let in, and
    the bound of the gateway's own retries if that is lower. None is no limit.
    """

    __slots__ = ("_own_retry_percent", "_random", "_values", "breaker", "shed_all", "shed_retries")

    def __init__(self, own_retry_percent: float | None, rng: random.Random) -> None:
        self._own_retry_percent = own_retry_percent
        self._random = rng.random
        self._values: dict[str, float | None] = dict.fromkeys(LIMITS)
        self.breaker = math.inf
        self.shed_all = self.shed_retries = 0.0  # shares

    def value(self, lever: str) -> float | None:
        self._check(lever)
        return self._values[lever]

    def set(self, lever: str, value: float | None) -> None:
        """ValueError for a lever that is none or a value out of range, as Envoy's own checks or the agent's would."""
        self._check(lever)
        if value is not None and not (0 <= value < math.inf and (value <= 100 or lever == "breaker")):
            bounds = "0 or more" if lever == "breaker" else "0 to 100"
            raise ValueError(f"expected {bounds} for {lever}, found {value}: correct the value")
        self._values[lever] = value
        if lever == "breaker":
            self.breaker = math.inf if value is None else value
        else:
            shed = 0.0 if value is None else 1 - value / 100
            setattr(self, "shed_all" if lever == "admission" else "shed_retries", shed)

    def refusal(self, retry: bool) -> dict[str, str] | None:
        """Headers of the 429 that a request gets, the route for retries first; None: it may pass."""
        if retry and self.shed_retries and self._random() < self.shed_retries:
            return SHED_RETRY
        if self.shed_all and self._random() < self.shed_all:
            return SHED_ALL
        return None

    @property
    def own_retry_percent(self) -> float | None:
        """The gateway's own retries at once, in percent of the requests in flight; None: no bound."""
        known = [value for value in (self._own_retry_percent, self._values["retry_budget"]) if value is not None]
        return min(known, default=None)

    @staticmethod
    def _check(lever: str) -> None:
        if lever not in LIMITS:
            raise ValueError(f"expected one of {', '.join(LIMITS)}, found {lever!r}: name a limit of the gateway")


class AdmissionControl:
    """Envoy's filter: rejects with p = max(0, (n - ok / threshold) / (n + 1)) ** (1 / aggression), p at most
    max_rejection, where n and ok are the requests that ended, and well, in the window (admission_control.proto).

    Requests it rejects are not in n. A success is a finished 2xx; a client that left is a failure.
    """

    __slots__ = ("_oks", "_random", "_requests", "_seconds", "_settings", "rejected")

    def __init__(self, options: settings.AdmissionControl, rng: random.Random) -> None:
        self._settings = options
        self._random = rng.random
        self._seconds: deque[list[int]] = deque()  # [second, requests, successes], as Envoy one a second
        self._requests = self._oks = 0
        self.rejected = 0

    def record(self, now: float, success: bool) -> None:
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        self._seconds[-1][1] += 1
        self._seconds[-1][2] += success
        self._requests += 1
        self._oks += success

    def rejects(self, now: float) -> bool:
        """Whether the request that just came is turned away; counts it if so."""
        probability = self.probability(now)
        rejected = probability > 0 and self._random() < probability
        self.rejected += rejected
        return rejected

    def probability(self, now: float) -> float:
        seconds, options = self._seconds, self._settings
        while seconds and now - seconds[0][0] >= options.window_s:
            _, requests, oks = seconds.popleft()
            self._requests -= requests
            self._oks -= oks
        if not seconds or self._requests / max(1.0, now - seconds[0][0]) < options.rps_threshold:
            return 0.0
        if options.success_threshold == 0:
            return 0.0  # any success rate will do
        missing = (self._requests - self._oks / options.success_threshold) / (self._requests + 1)
        return float(min(max(0.0, missing) ** (1 / options.aggression), options.max_rejection))
