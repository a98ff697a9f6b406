"""What keeps the agent itself from acting, as findings: it must not look idle when it is hindered. Pure.

A journal that takes no writes, levers that no system shows, orders that a system accepts and ignores, and a
system that restarted and forgot its limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from actuators.model import Action, LeverKey, LeverReading, Outcome
from analyzers.codes import CODES
from analyzers.model import Evidence, Finding, Layer, Scope, ScopeKind, Severity

FLEET = Scope(ScopeKind.FLEET, "fleet")
MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class Ignored:
    """Orders of one lever accepted without effect: how many in a row, and when the next may be sent."""

    count: int
    until: float
    detail: str


def ignored_again(
    before: Ignored | None, outcome: Outcome, cooldown_s: float, longest_s: float, now: float
) -> Ignored:
    """One more: the pause doubles from the cool-down up to the quarantine; a slow system is not given up."""
    count = 1 if before is None else before.count + 1
    pause = min(longest_s, cooldown_s * 2 ** min(count - 1, MOST_DOUBLINGS))
    return Ignored(count, now + pause, outcome.detail)


def find(
    readings: Sequence[LeverReading],
    ignored: Mapping[LeverKey, Ignored],
    journal_error: str | None,
    previous: Sequence[Finding],
    now: float,
) -> tuple[Finding, ...]:
    """Findings of this cycle; the onset of one that goes on is taken from `previous`."""
    found = [*_journal(journal_error), *_unreadable(readings), *_restarted(readings), *_ignored(ignored, now)]
    since = {finding.key: finding.since for finding in previous}
    return tuple(
        Finding(
            slug=slug,
            code=CODES[slug],
            severity=severity,
            scope=scope,
            since=since.get((slug, scope), now),
            confidence=0.95,
            summary=summary,
            layer=layer,
            evidence=evidence,
            pool=scope.name if scope.kind is ScopeKind.POOL else None,
        )
        for slug, severity, scope, layer, summary, evidence in found
    )


_Found = tuple[str, Severity, Scope, Layer, str, tuple[Evidence, ...]]


def _journal(error: str | None) -> Iterator[_Found]:
    if error is not None:
        evidence = (Evidence("journal_writable", 0.0, 1.0, error, "bool"),)
        yield (
            "controller-inert",
            Severity.CRITICAL,
            FLEET,
            Layer.TELEMETRY,
            f"Nothing can be moved: {error}",
            evidence,
        )


def _unreadable(readings: Sequence[LeverReading]) -> Iterator[_Found]:
    """Levers of which not one handle can be read; single endpoints come and go."""
    by_pool: dict[str, dict[str, list[LeverReading]]] = {}
    for reading in readings:
        by_pool.setdefault(reading.key.pool, {}).setdefault(reading.key.lever.value, []).append(reading)
    for pool, levers in by_pool.items():
        lost = {name: items for name, items in levers.items() if not any(item.known for item in items)}
        if not lost:
            continue
        reason = next(iter(lost.values()))[0].reason
        yield (
            "controller-inert",
            Severity.WARNING,
            Scope(ScopeKind.POOL, pool),
            Layer.GATEWAY,
            f"{len(lost)} of {len(levers)} levers of pool {pool} cannot be read and are not moved: {reason}",
            tuple(Evidence(f"lever:{name}", None, None, items[0].reason) for name, items in lost.items()),
        )


def _restarted(readings: Sequence[LeverReading]) -> Iterator[_Found]:
    """A value that is known and comes with a reason: the back end saw its system begin anew."""
    told: dict[str, list[LeverReading]] = {}
    for reading in readings:
        if reading.known and reading.reason:
            told.setdefault(reading.key.pool, []).append(reading)
    for pool, items in told.items():
        yield (
            "change-correlated",
            Severity.INFO,
            Scope(ScopeKind.POOL, pool),
            Layer.CHANGE,
            f"{items[0].reason}; what is held there is set again",
            tuple(Evidence(str(item.key), item.value, None, item.reason) for item in items),
        )


def _ignored(ignored: Mapping[LeverKey, Ignored], now: float) -> Iterator[_Found]:
    by_pool: dict[str, list[tuple[LeverKey, Ignored]]] = {}
    for key, item in ignored.items():
        by_pool.setdefault(key.pool, []).append((key, item))
    for pool, items in by_pool.items():
        key, first = items[0]
        times = "once" if first.count == 1 else f"{first.count} times"
        rest = max(0.0, first.until - now)
        yield (
            "actuation-ineffective",
            Severity.WARNING,
            Scope(ScopeKind.POOL, pool),
            Layer.GATEWAY,
            f"{key} was accepted and ignored {times}, not sent again for {rest:.0f} s: {first.detail}",
            tuple(Evidence(str(key), None, None, item.detail) for key, item in items),
        )


def still_told(ignored: Mapping[LeverKey, Ignored], now: float, keep_s: float) -> dict[LeverKey, Ignored]:
    """Those that are held back, or were until `keep_s` seconds ago."""
    return {key: item for key, item in ignored.items() if now < item.until + keep_s}


def effective(ignored: Mapping[LeverKey, Ignored], action: Action) -> dict[LeverKey, Ignored]:
    """Without the lever that has just followed an order."""
    return {key: item for key, item in ignored.items() if key != action.key}
