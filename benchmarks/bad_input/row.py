"""What one bad input did, as a row of the table, and how rows are read out of the loop's own reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from actuators.model import Status
from analyzers.codes import CODES
from analyzers.model import Finding, ScopeKind
from inferostat.loop import CycleReport

_VOLATILE = (
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"(?<=[\s'])/(?:[\w.-]+/)+|^/(?:[\w.-]+/)+"), "DIR/"),
    (re.compile(r"\b\d{10}(?:\.\d+)?\b"), "TIME"),
    (re.compile(r"damaged-\w+"), "damaged-TIME"),
    (re.compile(r"restarted \d+ s ago"), "restarted N s ago"),
)


@dataclass(frozen=True)
class Row:
    """`said`: the error as shown. `findings`: raised by it. `acted`: moved because of it, to be empty.

    `kept`: what went on or was not lost. `after`: what happened once it ended. `broken`: promises not held,
    to be empty.
    """

    group: str
    case: str
    said: str
    findings: tuple[str, ...] = ()
    acted: tuple[str, ...] = ()
    kept: str = ""
    after: str = ""
    broken: tuple[str, ...] = ()


@dataclass
class Promises:
    """Collects what does not hold."""

    broken: list[str] = field(default_factory=list)

    def hold(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.broken.append(otherwise)


def stable(text: str) -> str:
    """The text without ports, folders and times, so that two runs say the same."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return " ".join(text.split())


def findings_of(reports: Iterable[CycleReport]) -> dict[str, Finding]:
    """The last finding of each slug and scope."""
    return {f"{finding.slug} {finding.scope}": finding for report in reports for finding in report.analysis.findings}


def raised(
    during: Iterable[CycleReport], before: Sequence[CycleReport], *, of_endpoints: bool = True
) -> tuple[str, ...]:
    """`slug (severity)` of findings that were not there before, each once.

    `of_endpoints` False leaves out what is said of a single engine: where one is down on purpose, to give a reason
    to act, how it is told on the way there is not the case's.
    """
    old = findings_of(before)
    new = {
        f"{finding.slug} ({finding.severity.name.lower()})"
        for key, finding in findings_of(during).items()
        if key not in old and (of_endpoints or finding.scope.kind is not ScopeKind.ENDPOINT)
    }
    return tuple(sorted(new))


def of_the_agent(found: tuple[str, ...]) -> tuple[str, ...]:
    """Those of what is read, of the agent itself and of changes, without those of the load."""
    return tuple(
        text
        for text in found
        if CODES[text.split(" ")[0]].startswith(("IS07", "IS08")) or text.startswith("change-correlated")
    )


def applied(reports: Iterable[CycleReport]) -> tuple[str, ...]:
    """Actions that took effect."""
    return tuple(
        stable(f"{action.key} {_text(action.before)} -> {_text(action.after)}")
        for report in reports
        if report.decision is not None
        for action, outcome in zip(report.decision.actions, report.outcomes, strict=True)
        if outcome.status is Status.APPLIED
    )


def outcomes(reports: Iterable[CycleReport], status: Status) -> tuple[str, ...]:
    """Details of the outcomes of one status, in order."""
    return tuple(outcome.detail for report in reports for outcome in report.outcomes if outcome.status is status)


def failed_cycles(reports: Iterable[CycleReport]) -> tuple[str, ...]:
    return tuple(report.error for report in reports if report.error is not None)


def explains(text: str) -> bool:
    """Expected, found, and what to do."""
    expected, found = text.find("expected "), text.find("found ")
    return 0 <= expected < found and bool(re.search(r"[;:] ?\w+", text[found:]))


def _text(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"
