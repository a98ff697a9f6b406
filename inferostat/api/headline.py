"""The state of the fleet in one sentence: what an on-call engineer must know in five seconds."""

from __future__ import annotations

from dataclasses import dataclass

from actuators.model import Lever, LeverReading
from analyzers.model import Finding, Severity
from inferostat.api.events import lever_value
from inferostat.api.view import CycleView

# a storm is what drives the saturation and the timeouts seen beside it: it is named first, whatever is worse
STORMS = ("retry-storm-collapsed", "retry-storm", "retry-storm-incipient")


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
        return Headline("unknown", "No endpoints", "No endpoints known", "Discovery has found nothing to watch.")
    if serving == 0:
        return Headline("critical", "No endpoint can be read", "No endpoint can be read", detail)
    pressing = _pressing(view.analysis.findings)
    if not pressing:
        return Headline("ok", "Healthy", "Healthy: nothing needs attention", detail)
    first = min(pressing, key=_rank)
    more = f" (and {len(pressing) - 1} more)" if len(pressing) > 1 else ""
    level = max(finding.severity for finding in pressing).name.lower()
    return Headline(level, _name(first), f"{_name(first)}: {first.summary}{more}", detail)


def _name(finding: Finding) -> str:
    words = finding.slug.replace("-", " ")
    return f"{words[:1].upper()}{words[1:]}"


def _serving(view: CycleView) -> tuple[int, int]:
    up = {target.name for target in view.frame.targets if target.up}
    endpoints = view.frame.topology.endpoints
    return sum(name in up for name in endpoints), len(endpoints)


def _pressing(findings: tuple[Finding, ...]) -> list[Finding]:
    """Information (such as `vulnerable`) is no reason for concern."""
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Storms first, then the most severe, then the oldest."""
    order = STORMS.index(finding.slug) if finding.slug in STORMS else len(STORMS)
    return (order, -finding.severity, finding.since)


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
