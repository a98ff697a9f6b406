"""What keeps the agent itself from acting, as findings: it must not look idle when it is hindered. Pure.

A journal that takes no writes, levers that no system shows, orders without effect, and a system that restarted
and forgot its limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from actuators.model import LeverKey, LeverReading, Outcome, Status
from analyzers.codes import CODES
from analyzers.model import Evidence, Finding, Layer, Scope, ScopeKind, Severity
from inferostat.planner.policy import LeverPolicy

FLEET = Scope(ScopeKind.FLEET, "fleet")
MOST_DOUBLINGS = 16
FAILURES_IN_A_ROW = 3
DISOBEYED = (Status.IGNORED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class JournalState:
    """`error`: why it takes no writes now. `recovered`: what became of a damaged file at the start."""

    error: str | None = None
    recovered: str | None = None


@dataclass(frozen=True, slots=True)
class Disobedience:
    """Orders of one lever in a row that did not take effect, and from when on it may have another."""

    count: int
    until: float
    detail: str


def disobeyed(before: Disobedience | None, outcome: Outcome, policy: LeverPolicy, now: float) -> Disobedience:
    """One more. The pause doubles from the cool-down up to the quarantine: a slow system is not given up.

    An order that was ignored is followed by a pause at once, one that failed (a system that comes and goes)
    after a few in a row.
    """
    count = 1 if before is None else before.count + 1
    patience = 1 if outcome.status is Status.IGNORED else FAILURES_IN_A_ROW
    doublings = min(count - patience, MOST_DOUBLINGS)
    pause = 0.0 if doublings < 0 else min(policy.quarantine_s, policy.cooldown_s * 2**doublings)
    return Disobedience(count, now + pause, outcome.detail)


def without(disobeying: Mapping[LeverKey, Disobedience], key: LeverKey) -> dict[LeverKey, Disobedience]:
    """The others: this lever has just followed an order."""
    return {other: item for other, item in disobeying.items() if other != key}


def recent(disobeying: Mapping[LeverKey, Disobedience], now: float, keep_s: float) -> dict[LeverKey, Disobedience]:
    """Those that are held back, or were until `keep_s` seconds ago."""
    return {key: item for key, item in disobeying.items() if now < item.until + keep_s}


def find(
    readings: Sequence[LeverReading],
    disobeying: Mapping[LeverKey, Disobedience],
    journal: JournalState,
    previous: Sequence[Finding],
    now: float,
) -> tuple[Finding, ...]:
    """Findings of this cycle; the onset of one that goes on is taken from `previous`."""
    found = [*_journal(journal), *_unreadable(readings), *_restarted(readings), *_disobeyed(disobeying, now)]
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


def _journal(journal: JournalState) -> Iterator[_Found]:
    if journal.recovered is not None:
        yield (
            "change-correlated",
            Severity.WARNING,
            FLEET,
            Layer.CHANGE,
            f"The journal was lost: {journal.recovered}",
            (Evidence("journal", None, None, journal.recovered),),
        )
    if journal.error is not None:
        evidence = (Evidence("journal_writable", 0.0, 1.0, journal.error, "bool"),)
        yield (
            "controller-inert",
            Severity.CRITICAL,
            FLEET,
            Layer.TELEMETRY,
            f"Nothing can be moved: {journal.error}",
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


def _disobeyed(disobeying: Mapping[LeverKey, Disobedience], now: float) -> Iterator[_Found]:
    by_pool: dict[str, list[tuple[LeverKey, Disobedience]]] = {}
    for key, item in disobeying.items():
        by_pool.setdefault(key.pool, []).append((key, item))
    for pool, items in by_pool.items():
        first = items[0][1]
        orders = "an order" if first.count == 1 else f"{first.count} orders in a row"
        again = f"none is sent for {first.until - now:.0f} s" if first.until > now else "the next is tried"
        yield (
            "actuation-ineffective",
            Severity.WARNING,
            Scope(ScopeKind.POOL, pool),
            Layer.GATEWAY,
            f"{orders} had no effect, {again}: {first.detail}",
            tuple(Evidence(str(key), None, None, item.detail) for key, item in items),
        )
