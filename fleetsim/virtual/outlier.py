"""Envoy's outlier detection: passive ejection of endpoints by errors in a row and by success rate."""

from __future__ import annotations

from collections.abc import Callable, Collection
from statistics import fmean, pstdev

from fleetsim import settings
from fleetsim.virtual.balancing import Endpoint
from fleetsim.virtual.moves import Moved, MoveLog
from fleetsim.virtual.simulation import Simulation

ACTOR = "envoy"


class OutlierDetection:
    """Counts answers and ejects at once after `consecutive_5xx` failures (5xx, resets, refused connections, the route's
    time-outs), and each interval those whose success rate is `stdev_factor` deviations under the endpoints' mean.

    An ejection lasts base x the number of ejections lately, at most max, and ends at an interval's tick; each interval
    without one forgets one. Proto: envoy.config.cluster.v3.OutlierDetection. Ejections are logged as weight 0.
    """

    def __init__(
        self,
        simulation: Simulation,
        options: settings.OutlierDetection,
        endpoints: Collection[Endpoint],
        changed: Callable[[], None],
        log: MoveLog,
    ) -> None:
        self._simulation = simulation
        self._settings = options
        self._endpoints = endpoints
        self._changed = changed
        self._log = log
        self.detected = {"consecutive_5xx": 0, "success_rate": 0}
        self.enforced = {"consecutive_5xx": 0, "success_rate": 0}
        self.overflow = 0  # not ejected because too many were already
        simulation.after(options.interval_s, self._tick)

    @property
    def active(self) -> int:
        return sum(endpoint.ejected_at is not None for endpoint in self._endpoints)

    def succeeded(self, endpoint: Endpoint) -> None:
        endpoint.failures_in_row = 0
        endpoint.interval_requests += 1

    def failed(self, endpoint: Endpoint) -> None:
        endpoint.interval_requests += 1
        endpoint.interval_failures += 1
        endpoint.failures_in_row += 1
        if endpoint.failures_in_row >= self._settings.consecutive_5xx and endpoint.ejected_at is None:
            endpoint.failures_in_row = 0
            if endpoint in self._endpoints:  # one that was removed may still answer
                self._eject(endpoint, "consecutive_5xx")

    def _tick(self) -> None:
        for endpoint in self._endpoints:
            self._end_ejection(endpoint)
        self._eject_by_success_rate()
        for endpoint in self._endpoints:
            endpoint.interval_requests = endpoint.interval_failures = 0
        self._simulation.after(self._settings.interval_s, self._tick)

    def _end_ejection(self, endpoint: Endpoint) -> None:
        options = self._settings
        if endpoint.ejected_at is None:
            endpoint.ejections = max(0, endpoint.ejections - 1)
            return
        length_s = min(options.base_ejection_s * endpoint.ejections, options.max_ejection_s)
        if self._simulation.now >= endpoint.ejected_at + length_s:
            endpoint.ejected_at = None
            endpoint.failures_in_row = 0
            self._note(endpoint, 0.0, endpoint.weight, "ejection is over")
            self._changed()

    def _eject_by_success_rate(self) -> None:
        options = self._settings
        rates = {
            endpoint.name: 1 - endpoint.interval_failures / endpoint.interval_requests
            for endpoint in self._endpoints
            if endpoint.ejected_at is None and endpoint.interval_requests >= options.success_rate_request_volume
        }
        if len(rates) < options.success_rate_minimum_hosts:
            return
        threshold = fmean(rates.values()) - options.success_rate_stdev_factor * pstdev(rates.values())
        for endpoint in self._endpoints:
            if rates.get(endpoint.name, 1.0) < threshold:
                self._eject(endpoint, "success_rate")

    def _eject(self, endpoint: Endpoint, why: str) -> None:
        self.detected[why] += 1
        ejected = self.active
        percent = 100 * (ejected + 1) / len(self._endpoints)
        if ejected and percent > self._settings.max_ejection_percent:
            self.overflow += 1
            return
        self.enforced[why] += 1
        longest = self._settings.max_ejection_s / self._settings.base_ejection_s
        endpoint.ejections = min(endpoint.ejections + 1, int(longest) + 1)
        endpoint.ejected_at = self._simulation.now
        self._note(endpoint, endpoint.weight, 0.0, why)
        self._changed()

    def _note(self, endpoint: Endpoint, before: float, after: float, reason: str) -> None:
        self._log.add(Moved(self._simulation.now, ACTOR, "weight", endpoint.name, before, after, reason))
