"""What a run came to: goodput ratios by cohort, recovery, success per dollar. Pure.

A cohort is the first attempts that arrived in an interval, whatever came of them later; a first attempt
succeeds if any of its attempts was answered in full before its client gave up. What was unfinished at the
end did not succeed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AFTER_S = 60.0  # the pool has this long to recover before the `after` cohort begins
RECOVERY_WINDOW_S = 15.0
RECOVERY_SPAN_S = 30.0
RECOVERY_RATIO = 0.9
RECOVERY_STEP_S = 0.5
ALLOCATED = frozenset({"warming", "ready", "draining", "crashed"})


@dataclass(frozen=True, slots=True)
class Attempted:
    """A first attempt: when it arrived (seconds from the clients' start) and whether it succeeded."""

    t: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Ratios are None where the cohort is empty, recovery where there was none."""

    goodput_ratio_before_trigger: float | None
    goodput_ratio_during_fault: float | None
    goodput_ratio_after_trigger: float | None
    recovery_s: float | None
    success_per_dollar: float | None
    cost_usd: float
    first_attempts: int
    successes: int


def attempted(records: Sequence[Mapping[str, Any]]) -> list[Attempted]:
    """Lines of clients.jsonl as first attempts in order of arrival."""
    found = [Attempted(float(r["t_start"]), r["outcome"] == "ok") for r in records]
    return sorted(found, key=lambda a: a.t)


def ratio(requests: Sequence[Attempted], start: float, end: float) -> float | None:
    """Share of the first attempts of [start, end) that succeeded; None if there were none.

    `requests` in order of arrival: an hour of a fleet has hundreds of thousands, and recovery asks for every window.
    """
    first, beyond = (bisect_left(requests, edge, key=lambda r: r.t) for edge in (start, end))
    cohort = [r.ok for r in requests[first:beyond]]
    return sum(cohort) / len(cohort) if cohort else None


def recovery_s(requests: Sequence[Attempted], fault_end: float, known_until: float) -> float | None:
    """Seconds from the fault's end to the first 30 s in which the ratio over 15 s stays at or above 0.9.

    Windows that hold no request, or reach beyond `known_until`, prove nothing.
    """
    steps = int(max(0.0, known_until - fault_end) / RECOVERY_STEP_S) + 1
    starts = [fault_end + k * RECOVERY_STEP_S for k in range(steps)]
    good = [
        s + RECOVERY_WINDOW_S <= known_until and (ratio(requests, s, s + RECOVERY_WINDOW_S) or 0.0) >= RECOVERY_RATIO
        for s in starts
    ]
    needed = int((RECOVERY_SPAN_S - RECOVERY_WINDOW_S) / RECOVERY_STEP_S) + 1
    for first in range(len(good) - needed + 1):
        if all(good[first : first + needed]):
            return starts[first] - fault_end
    return None


def cost_usd(transitions: Sequence[Mapping[str, Any]], start: float, end: float) -> float:
    """Dollars between two wall-clock times: every second that GPUs were allocated, used or not."""
    since: dict[str, float] = {}
    total = 0.0
    for entry in [*sorted(transitions, key=lambda e: float(e["at"]))]:
        replica, at = str(entry["replica"]), float(entry["at"])
        if entry["to"] in ALLOCATED:
            since.setdefault(replica, at)
        elif replica in since:
            total += _dollars(entry, since.pop(replica), at, start, end)
    rates = {str(e["replica"]): e for e in transitions}
    return total + sum(_dollars(rates[replica], began, end, start, end) for replica, began in since.items())


def _dollars(entry: Mapping[str, Any], began: float, ended: float, start: float, end: float) -> float:
    seconds = max(0.0, min(ended, end) - max(began, start))
    return seconds * float(entry["gpus"]) * float(entry["price_usd_per_gpu_hour"]) / 3600


def outcomes(
    records: Sequence[Mapping[str, Any]],
    transitions: Sequence[Mapping[str, Any]],
    *,
    started_at: float,
    trigger: tuple[float, float],
    duration_s: float,
    patience_s: float,
) -> Outcomes:
    """All figures of a run that started at wall-clock time `started_at` and lasted `duration_s`."""
    requests = attempted(records)
    fault_start, fault_end = trigger
    known_until = duration_s - patience_s
    dollars = cost_usd(transitions, started_at, started_at + duration_s)
    successes = sum(r.ok for r in requests)
    return Outcomes(
        goodput_ratio_before_trigger=ratio(requests, 0.0, fault_start),
        goodput_ratio_during_fault=ratio(requests, fault_start, fault_end),
        goodput_ratio_after_trigger=ratio(requests, fault_end + AFTER_S, known_until),
        recovery_s=recovery_s(requests, fault_end, known_until),
        success_per_dollar=successes / dollars if dollars > 0 else None,
        cost_usd=dollars,
        first_attempts=len(requests),
        successes=successes,
    )
