"""What peers' policies see of the fleet: values of scrapes and the cluster's view, subject to what telemetry suffers.

A Prometheus in between would answer a query with the last good scrape for five minutes; so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetsim.events import TelemetryEvent
from fleetsim.virtual.exporters import FAMILY_OF
from fleetsim.virtual.observation import EngineSeen, GatewaySeen, Observation, ReplicaSeen
from fleetsim.virtual.telemetry import GATEWAY, Feed, ScrapeRefused, Telemetry

if TYPE_CHECKING:
    from fleetsim.virtual.pool import Pool
    from fleetsim.virtual.replica import Replica

LOOK_BACK_S = 300.0
GATEWAY_FAMILY = "envoy_"


class Observer:
    """Scrapes everything at each look. `bounds` are the fewest and most replicas that may be asked for."""

    def __init__(
        self,
        pool: Pool,
        telemetry: Telemetry,
        gateway_seen: Callable[[float], GatewaySeen],
        bounds: tuple[int, int],
    ) -> None:
        self._pool = pool
        self._telemetry = telemetry
        self._gateway_seen = gateway_seen
        self._bounds = bounds
        self._engines: dict[str, Feed[EngineSeen]] = {}
        self._gateway: Feed[GatewaySeen | None] = Feed(telemetry.events_of(GATEWAY), _alter_gateway)
        self._good: dict[str, EngineSeen] = {}  # the last good scrape

    def observe(self, now: float) -> Observation:
        """Look once. Prefill engines of a disaggregated pool are not scaled and not shown."""
        replicas = tuple(ReplicaSeen(r.name, r.state.value, r.since, self._engine(r, now)) for r in self._pool.scalable)
        low, high = self._bounds
        return Observation(now, self._pool.wanted, low, high, replicas, self._gateway_now(now))

    def _engine(self, replica: Replica, now: float) -> EngineSeen | None:
        name = replica.name
        if replica.server.listening:
            feed = self._engines.get(name)
            if feed is None:
                feed = self._engines[name] = Feed(self._telemetry.events_of(name), alter_engine)
            try:
                seen = feed.read(now, lambda: engine_seen(replica, now))
            except ScrapeRefused:
                pass
            else:
                # Old values come with the time of the scrape that brought them, as Prometheus would store them.
                self._good[name] = seen if seen.scraped_at == now else replace(seen, scraped_at=now)
        good = self._good.get(name)
        return good if good is not None and now - good.scraped_at <= LOOK_BACK_S else None

    def _gateway_now(self, now: float) -> GatewaySeen | None:
        try:
            seen = self._gateway.read(now, lambda: self._gateway_seen(now))
        except ScrapeRefused:
            return None
        return seen if seen is None or seen.scraped_at == now else replace(seen, scraped_at=now)


def engine_seen(replica: Replica, now: float) -> EngineSeen:
    """A scrape of an engine now. Only while it listens."""
    server = replica.server
    profile = server.advance().profile
    assert server.metrics is not None
    return server.metrics.seen(profile.num_blocks * profile.block_size, now)


def alter_engine(seen: EngineSeen, event: TelemetryEvent) -> EngineSeen:
    """Without the values of the event's families: gone and NaN are both "not known"."""
    unknown: dict[str, Any] = {field: None for field, family in FAMILY_OF.items() if family in event.families}
    return replace(seen, **unknown)


def _alter_gateway(seen: GatewaySeen | None, event: TelemetryEvent) -> GatewaySeen | None:
    """Nothing is known of a gateway that lost any of its families: its values make sense together only."""
    return None if _any_of_gateway(event.families) else seen


def _any_of_gateway(families: Iterable[str]) -> bool:
    return any(family.startswith(GATEWAY_FAMILY) for family in families)
