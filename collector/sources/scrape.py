"""Scrapes all targets at once and makes a Frame of what they said.

A collection never raises for a target: what fails shows as the target's status and as cells that grow old.
Fetching comes first and for all targets together, then reading, then the frame, each timed on its own. How a body
is fetched is a part of its own (`Fetcher`): over HTTP, or from a model of a fleet that has no sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from collector.model import Frame, TargetStatus
from collector.sources.fetch import HEADERS, Body, FetchError, fetch
from collector.sources.frame import FrameBuilder
from collector.sources.record import TargetRecord
from collector.sources.targets import Discovery, Target


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How to scrape. Times in seconds; None is the default derived from the interval.

    deadline_s: for one target, 80 % of the interval and at most 10. freshness_s: how long a sample may be
    used, three intervals and at least 5. jitter: share of the interval over which scrapes start, at the same
    place each time for a target. backoff_cap_s: longest pause after repeated failures, 12 intervals and at
    most 60. max_body_bytes: of one body, decompressed.
    """

    interval_s: float = 5.0
    deadline_s: float | None = None
    freshness_s: float | None = None
    jitter: float = 0.1
    backoff_cap_s: float | None = None
    max_body_bytes: int = 16 * 1024 * 1024
    concurrency: int = 256

    @property
    def deadline(self) -> float:
        return min(self.interval_s * 0.8, 10.0) if self.deadline_s is None else self.deadline_s

    @property
    def freshness(self) -> float:
        return max(5.0, 3 * self.interval_s) if self.freshness_s is None else self.freshness_s

    @property
    def backoff_cap(self) -> float:
        return min(60.0, 12 * self.interval_s) if self.backoff_cap_s is None else self.backoff_cap_s


@dataclass(slots=True)
class CollectCost:
    """CPU seconds of this process's thread in one collection, by part."""

    http_s: float = 0.0
    parse_s: float = 0.0
    frame_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Outcome of one target's HTTP: a body or an error, and when."""

    outcome: Body | FetchError
    at: float
    duration_s: float


@dataclass(slots=True)
class _Known:
    records: dict[str, TargetRecord] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Fetcher(Protocol):
    """Where bodies come from."""

    async def fetch(self, target: Target, deadline_s: float, max_bytes: int) -> Body:
        """The target's body, whole, within `deadline_s` seconds and `max_bytes` bytes. Raises FetchError."""

    async def close(self) -> None:
        """Let go of what is open; the fetcher may be used again."""


class HttpFetcher:
    """Bodies over HTTP, on connections that are kept from one collection to the next."""

    def __init__(self, settings: ScrapeSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, target: Target, deadline_s: float, max_bytes: int) -> Body:
        return await fetch(self._client(), target, deadline_s, max_bytes)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Deadlines are the caller's.
            connector = aiohttp.TCPConnector(
                limit=self._settings.concurrency,
                keepalive_timeout=max(15.0, 2 * self._settings.interval_s),
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=HEADERS,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class ScrapeSource:
    """Frames from live targets. `discovery` is asked for its targets at each collection; `fetcher` None is HTTP."""

    def __init__(
        self,
        discovery: Discovery,
        settings: ScrapeSettings | None = None,
        clock: Callable[[], float] = time.time,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._discovery = discovery
        self._settings = settings or ScrapeSettings()
        self._clock = clock
        self._fetcher = fetcher or HttpFetcher(self._settings)
        self._known = _Known()
        self._builder = FrameBuilder(self._settings.freshness)
        self.cost = CollectCost()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the target list itself."""
        return self._known.warnings

    @property
    def statuses(self) -> tuple[TargetStatus, ...]:
        return tuple(record.status() for record in self._known.records.values())

    async def collect(self, now: float) -> Frame:
        """Scrape what is due at `now`. The frame's time is when the last target had answered or failed."""
        records = self._discover()
        began = time.thread_time()
        due = [record for record in records if record.due(now)]
        fetched = await asyncio.gather(*(self._fetch(record) for record in due))
        read = time.thread_time()
        for record, got in zip(due, fetched, strict=True):
            error = (
                str(got.outcome)
                if isinstance(got.outcome, FetchError)
                else record.take(got.outcome, got.at, got.duration_s)
            )
            if error is not None:
                record.fail(error, got.at, self._settings.interval_s, self._settings.backoff_cap)
        built = time.thread_time()
        frame = self._builder.build(records, max(now, self._clock()))
        self.cost = CollectCost(read - began, built - read, time.thread_time() - built)
        return frame

    async def close(self) -> None:
        """Close all connections; the source may be used again."""
        await self._fetcher.close()

    def _discover(self) -> list[TargetRecord]:
        """Records of the targets of now; one that is the same as before keeps what was learnt of it."""
        targets: dict[str, Target] = {}
        twice: list[str] = []
        for one in self._discovery.targets():
            if one.name in targets:
                twice.append(f"expected each target's name once, found {one.name} again; rename {one.url}")
            else:
                targets[one.name] = one
        before = self._known.records
        records = {
            name: before[name] if name in before and before[name].target == one else TargetRecord(one)
            for name, one in targets.items()
        }
        self._known = _Known(records, (*self._discovery.warnings, *twice))
        return list(records.values())

    async def _fetch(self, record: TargetRecord) -> _Fetched:
        offset = record.offset_s(self._settings.jitter * self._settings.interval_s)
        if offset:
            await asyncio.sleep(offset)
        target = record.target
        began = self._clock()
        deadline = self._settings.deadline if target.deadline_s is None else target.deadline_s
        outcome: Body | FetchError
        try:
            outcome = await self._fetcher.fetch(target, deadline, self._settings.max_body_bytes)
        except FetchError as error:
            outcome = error
        ended = self._clock()
        return _Fetched(outcome, ended, ended - began)
