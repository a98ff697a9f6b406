"""What is remembered of one target between scrapes: its reader, its last good reading, its failures."""

from __future__ import annotations

import zlib

from collector.model import Endpoint, Level, TargetRole, TargetStatus
from collector.reading import SELF_ROW, Reading, TargetReader
from collector.sources.fetch import Body
from collector.sources.targets import Target

_START = "process_start_time"
_START_MOVED_S = 1.0
_TOTALS = ("generation_tokens", "prompt_tokens", "requests_by_finish_reason.stop")
# Failures before the next attempt is put off: one or two are an accident, and a restart takes longer.
_PATIENCE = 3
_LEVELS = {
    TargetRole.ENGINE: Level.ENDPOINT,
    TargetRole.GPU: Level.DEVICE,
    TargetRole.GATEWAY: Level.ROUTE,
}


class TargetRecord:
    """State of one target. Times are unix seconds of the source's clock."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.reading: Reading | None = None  # the last good one, kept while scrapes fail
        self.read_at: float | None = None
        self.endpoint = _endpoint(target, None)  # who it is, if it is an engine
        self._reader = TargetReader(target.product, target.labels.get("cluster"))
        self._error: str | None = None
        self._failing_since: float | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._duration_s: float | None = None
        self._warnings: tuple[str, ...] = ()
        self._started: float | None = None

    def due(self, now: float) -> bool:
        """Whether to scrape at `now`; a target in back-off waits, but never for ever."""
        return now >= self._retry_at

    def offset_s(self, spread_s: float) -> float:
        """This target's place in [0, spread_s): always the same, so that its samples stay evenly spaced."""
        return zlib.crc32(self.target.name.encode()) / 2**32 * spread_s

    def fail(self, error: str, now: float, interval_s: float, cap_s: float) -> None:
        """Note a failed scrape; from the third on, the pause doubles up to `cap_s`."""
        self._error, self._warnings, self._duration_s = error, (), None
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._failures += 1
        pauses = max(0, self._failures - _PATIENCE + 1)
        self._retry_at = now + min(cap_s, interval_s * 2 ** min(pauses, 16)) if pauses else now

    def take(self, body: Body, now: float, duration_s: float) -> str | None:
        """Read a body that arrived at `now`; the error if it is not what the target should give."""
        reading = self._reader.read(body.data, body.content_type)
        if reading.error is not None:
            return reading.error
        level = _LEVELS[self.target.role]
        if level not in reading.rows:
            return (
                f"expected {_article(self.target.role)}'s metrics, found {reading.product}; correct the target's role"
            )
        before = self.reading
        if before is None or before.product != reading.product:
            self._started = None
        if before is None or _identity(before) != _identity(reading):
            self.endpoint = _endpoint(self.target, reading)
        self._warnings = (*reading.warnings, *_unread(reading), *self._restart(reading))
        self.reading, self.read_at, self._duration_s = reading, now, duration_s
        self._error, self._failing_since, self._failures, self._retry_at = None, None, 0, 0.0
        return None

    def _restart(self, reading: Reading) -> tuple[str, ...]:
        if self.target.role is not TargetRole.ENGINE:
            return ()
        started = reading.rows[Level.ENDPOINT].cell(SELF_ROW, _START).known
        before, self._started = self._started, started if started is not None else self._started
        if started is None:
            return _began_anew(self.reading, reading)
        if before is None or abs(started - before) <= _START_MOVED_S:
            return ()
        return (f"the engine's process changed: started at {started:.0f}, before it at {before:.0f}",)

    def status(self) -> TargetStatus:
        reading = self.reading
        return TargetStatus(
            name=self.target.name,
            role=self.target.role,
            url=self.target.url,
            up=self._error is None and reading is not None,
            error=self._error,
            failing_since=self._failing_since,
            scraped_at=self.read_at,
            duration_s=self._duration_s,
            product=reading.product if reading is not None else None,
            warnings=self._warnings,
            missed=reading.missed if reading is not None else (),
        )


def _identity(reading: Reading) -> tuple[str | None, ...]:
    return reading.product, reading.version, reading.model


def _endpoint(target: Target, reading: Reading | None) -> Endpoint:
    """Identity of an engine: what discovery says of it, then what its body says."""
    product, version, model = (target.product, None, None) if reading is None else _identity(reading)
    return Endpoint(
        name=target.name,
        pool=target.pool,
        url=target.base_url,
        address=target.address,
        gpus=target.gpus,
        product=product,
        version=target.labels.get("version") or version,
        model=target.labels.get("model") or model,
        build=target.labels.get("build"),
    )


def _began_anew(before: Reading | None, reading: Reading) -> tuple[str, ...]:
    """A restart of an engine that does not tell its start: one counter may be reset, not several at once."""
    if before is None or Level.ENDPOINT not in before.rows:
        return ()
    old, new = (one.rows[Level.ENDPOINT] for one in (before, reading))
    pairs = ((old.cell(SELF_ROW, name).known, new.cell(SELF_ROW, name).known) for name in _TOTALS)
    fell = sum(1 for was, now in pairs if was is not None and now is not None and now < was)
    return ("the engine's counters all began anew: its process changed",) if fell > 1 else ()


def _unread(reading: Reading) -> tuple[str, ...]:
    errors = reading.parse_errors
    return (f"{len(errors)} lines not understood, the first: {errors[0]}",) if errors else ()


def _article(role: TargetRole) -> str:
    return {
        TargetRole.ENGINE: "an engine",
        TargetRole.GPU: "a GPU exporter",
        TargetRole.GATEWAY: "a gateway",
    }[role]
