"""The state of the fleet in one sentence: what an on-call engineer must know in five seconds."""

from __future__ import annotations

from dataclasses import dataclass

from actuators.model import Lever, LeverReading
from analyzers.model import Finding, Severity
from inferostat.api.events import lever_value
from inferostat.api.view import CycleView

# most telling first, where several findings are equally severe
SLUG_ORDER = ("retry-storm-collapsed", "retry-storm", "retry-storm-incipient", "retry-storm-recovering")


@dataclass(frozen=True, slots=True)
class Headline:
    """`level`: ok, warning, critical or unknown (nothing can be said).

    `name` has no numbers in it: it changes only when the state does, so a screen reader can announce it.
    """

    level: str
    name: str
    title: str
    detail: str


def headline(view: CycleView | None) -> Headline:
    if view is None:
        return Headline("unknown", "Waiting", "Waiting for the first cycle", "Nothing has been scraped yet.")
    serving, total = _serving(view)
    served = f"{serving} of {total} endpoints answer"
    limits = ", ".join(_limits(view.readings))
    detail = f"{served}. In force: {limits}." if limits else f"{served}. No limit is in force."
    if total == 0:
        return Headline(
            "unknown", "No endpoints", "No endpoints known", "Discovery has found nothing to watch."
        )
    if serving == 0:
        return Headline("critical", "No endpoint can be read", "No endpoint can be read", detail)
    worst = _worst(view.analysis.findings)
    if worst is None:
        return Headline("ok", "Healthy", "Healthy: nothing needs attention", detail)
    others = sum(finding.severity is not Severity.INFO for finding in view.analysis.findings) - 1
    more = f" (and {others} more)" if others > 0 else ""
    return Headline(
        worst.severity.name.lower(), _name(worst), f"{_name(worst)}: {worst.summary}{more}", detail
    )


def _name(finding: Finding) -> str:
    words = finding.slug.replace("-", " ")
    return f"{words[:1].upper()}{words[1:]}"


def _serving(view: CycleView) -> tuple[int, int]:
    up = {target.name for target in view.frame.targets if target.up}
    endpoints = view.frame.topology.endpoints
    return sum(name in up for name in endpoints), len(endpoints)


def _worst(findings: tuple[Finding, ...]) -> Finding | None:
    """The most severe finding; information (such as `vulnerable`) is no reason for concern."""

    def rank(finding: Finding) -> tuple[int, int, float]:
        order = SLUG_ORDER.index(finding.slug) if finding.slug in SLUG_ORDER else len(SLUG_ORDER)
        return (-finding.severity, order, finding.since)

    return min((f for f in findings if f.severity is not Severity.INFO), key=rank, default=None)


def _limits(readings: tuple[LeverReading, ...]) -> list[str]:
    """Levers of a pool that hold something back right now."""
    texts = {
        Lever.BREAKER: "concurrency at most",
        Lever.ADMISSION: "admission",
        Lever.RETRY_BUDGET: "retries",
    }
    return [
        f"{texts[reading.key.lever]} {lever_value(reading.key.lever, reading.value)}"
        for reading in readings
        if reading.known and reading.value is not None and reading.key.lever in texts
    ]
