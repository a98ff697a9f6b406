"""What a scraper of the fleet in virtual time gets: targets, bodies, and bodies gone wrong.

A target is refused while its process does not listen. Nothing times out: a hung engine's front end answers
scrapes, as in the wall-clock fleet, with gauges that stand still. On top come the timeline's telemetry
events; of those that name a target the latest counts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from fleetsim.events import TelemetryEvent
from fleetsim.file_sd import engine_target, exporter_target, gateway_target
from fleetsim.virtual.exporters import DeviceExporter, engine_body
from fleetsim.virtual.pool import Pool

GATEWAY, DEVICES = "gateway", "dcgm"
GATEWAY_ADDRESS, DEVICES_ADDRESS = "10.1.0.1:9901", "10.1.0.2:9400"
GATEWAY_CLUSTER = "llm"
_NAME = re.compile(r"(?:# (?:HELP|TYPE) )?([A-Za-z_:][A-Za-z0-9_:]*)")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")

T = TypeVar("T")


class ScrapeRefused(Exception):
    """Nobody answered the scrape; the message says how it failed."""


class Feed(Generic[T]):
    """What one scraper gets from one target over time: what it says now, or something older, or nothing.

    `alter` makes an answer without the event's families, or with NaN for them. A lagging answer is the newest
    one, of those this scraper asked for, that is `lag_s` old; the oldest one while none is.
    """

    def __init__(self, events: Sequence[TelemetryEvent], alter: Callable[[T, TelemetryEvent], T]) -> None:
        self._events = events
        self._starts = [event.at_s for event in events]
        self._alter = alter
        self._last: T | None = None
        self._kept: deque[tuple[float, T]] = deque()
        # Answers must be there by the time a lag begins: from this long before it they are kept.
        self._keep_s = max((e.lag_s for e in events if e.mode == "lag"), default=0.0)

    def read(self, now: float, fresh: Callable[[], T]) -> T:
        """The answer to a scrape at `now`. Raises ScrapeRefused."""
        if not self._events:
            return fresh()
        index = bisect_right(self._starts, now) - 1
        event = self._events[index] if index >= 0 else None
        mode = "well" if event is None else event.mode
        if mode == "refused":
            raise ScrapeRefused("connection refused")
        if mode == "stale" and self._last is not None:
            return self._last
        answer = fresh()
        if self._keep_s:
            answer = self._lagging(now, answer, event.lag_s if event is not None and mode == "lag" else 0.0)
        if event is not None and mode in ("missing", "nan"):
            answer = self._alter(answer, event)
        self._last = answer
        return answer

    def _lagging(self, now: float, answer: T, lag_s: float) -> T:
        kept = self._kept
        kept.append((now, answer))
        while len(kept) > 1 and kept[1][0] <= now - self._keep_s:
            kept.popleft()
        if not lag_s:
            return answer
        return next((a for t, a in reversed(kept) if t <= now - lag_s), kept[0][1])


class Telemetry:
    """All that can be scraped. Targets are asked for by name or by address."""

    def __init__(
        self,
        pool: Pool,
        devices: DeviceExporter,
        gateway_body: Callable[[float], str],
        events: Iterable[TelemetryEvent] = (),
    ) -> None:
        self._pool = pool
        self._devices = devices
        self._gateway_body = gateway_body
        self._events = sorted(events, key=lambda event: event.at_s)
        self._feeds: dict[str, Feed[str]] = {}

    def events_of(self, target: str) -> list[TelemetryEvent]:
        """What goes wrong with scrapes of a target, in order of time."""
        return [event for event in self._events if event.targets == "all" or target in event.targets]

    def targets(self) -> list[dict[str, Any]]:
        """Who can be scraped, in Prometheus' file_sd form and with the labels the wall-clock fleet publishes."""
        engines = [
            engine_target(
                address=r.address,
                name=r.name,
                state=r.state.value,
                gpus=self._pool.profile.gpus_per_replica,
                build=r.build,
                device=r.device,
            )
            for r in self._pool.allocated
        ]
        return [*engines, exporter_target(DEVICES_ADDRESS), gateway_target(GATEWAY_ADDRESS, GATEWAY_CLUSTER)]

    def body(self, target: str, now: float) -> str:
        """The target's body now. Raises ScrapeRefused, LookupError for a target there has never been."""
        if target in (GATEWAY, GATEWAY_ADDRESS):
            return self._feed(GATEWAY).read(now, lambda: self._gateway_body(now))
        if target in (DEVICES, DEVICES_ADDRESS):
            return self._feed(DEVICES).read(now, self._devices.body)
        replica = next((r for r in reversed(self._pool.replicas) if target in (r.name, r.address)), None)
        if replica is None:
            raise LookupError(f"expected a target of the fleet, found {target!r}: ask `targets` for them")
        if not replica.server.listening:
            raise ScrapeRefused("connection refused")
        return self._feed(replica.name).read(now, lambda: engine_body(replica.server))

    def _feed(self, target: str) -> Feed[str]:
        feed = self._feeds.get(target)
        if feed is None:
            feed = self._feeds[target] = Feed(self.events_of(target), alter_body)
        return feed


def alter_body(body: str, event: TelemetryEvent) -> str:
    """A body without the event's families (mode missing), or with all their values NaN."""
    families = set(event.families)
    out: list[str] = []
    for line in body.splitlines(keepends=True):
        found = _NAME.match(line)
        if found is None or not names_family(found.group(1), families):
            out.append(line)
        elif event.mode == "nan":
            out.append(line if line.startswith("#") else f"{line.rpartition(' ')[0]} NaN\n")
    return "".join(out)


def names_family(sample: str, families: set[str]) -> bool:
    """Whether a sample's name belongs to one of the families, as a histogram's buckets, sum and count do."""
    return sample in families or _SUFFIX.sub("", sample) in families
