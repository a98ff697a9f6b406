"""What changed from one cycle to the next, as a timeline a person can read: the story of an incident."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from actuators.model import Action, Lever, LeverValue, Status
from analyzers.model import Severity
from inferostat.api.fleet import FaultInfo, FleetInfo
from inferostat.api.view import ActionRecord, CycleView

# a limit that follows the queue moves every cycle: only the first move after such a silence is news
FOLLOW_UP_S = 15.0
NAMES = {Lever.SCALE: "replicas", Lever.BREAKER: "concurrency limit", Lever.RETRY_BUDGET: "retries let in"}
UNITS = {
    Lever.SCALE: " replicas",
    Lever.BREAKER: " requests",
    Lever.ADMISSION: " %",
    Lever.RETRY_BUDGET: " %",
}


@dataclass(frozen=True, slots=True)
class Event:
    """`kind`: fault, recovery, replica, finding, cleared, action, outcome, verdict, target, control.

    `marked` events are drawn into the charts.
    """

    at: float
    kind: str
    title: str
    detail: str = ""
    severity: str = "info"
    marked: bool = False


def changes(before: CycleView | None, now: CycleView, records: Sequence[ActionRecord]) -> list[Event]:
    """Events of one cycle. `records`: actions known before this cycle."""
    return [
        *_fleet(before.fleet if before else None, now.fleet, now.at),
        *_targets(before, now),
        *_findings(before, now),
        *_actions(now, records),
    ]


def lever_value(lever: Lever, value: LeverValue) -> str:
    """`off` where the lever sets no limit, else the number with its unit."""
    return "off" if value is None else f"{value:.4g}{UNITS.get(lever, '')}"


def _fleet(before: FleetInfo | None, now: FleetInfo | None, at: float) -> Iterator[Event]:
    if now is None:
        return
    old = before.faults if before else ()
    for fault in _without(now.faults, old):
        yield Event(at, "fault", f"fault: {fault.text()}", severity="warning", marked=True)
    for fault in _without(old, now.faults):
        yield Event(at, "recovery", f"fault over: {fault.text()}", marked=True)
    if before is None:
        return
    if now.load_factor is not None and before.load_factor not in (None, now.load_factor):
        yield Event(at, "fault", f"load now x{now.load_factor:g}", severity="warning", marked=True)
    states = {replica.address: replica.state for replica in before.replicas}
    for replica in now.replicas:
        if states.get(replica.address) != replica.state:
            yield Event(at, "replica", f"{replica.name} is {replica.state}", detail=replica.address)


def _without(faults: Iterable[FaultInfo], others: Iterable[FaultInfo]) -> Iterator[FaultInfo]:
    """`faults` with the targets that `others` do not have under the same name."""
    there = {(fault.name, target) for fault in others for target in fault.targets}
    for fault in faults:
        left = tuple(target for target in fault.targets if (fault.name, target) not in there)
        if left:
            yield replace(fault, targets=left)


def _targets(before: CycleView | None, now: CycleView) -> Iterator[Event]:
    up = {target.name: target.up for target in before.frame.targets} if before else {}
    for target in now.frame.targets:
        if up.get(target.name, True) and not target.up and target.error is not None:
            yield Event(now.at, "target", f"{target.name} cannot be read", target.error, "warning")
        elif target.up and up.get(target.name) is False:
            yield Event(now.at, "target", f"{target.name} can be read again")


def _findings(before: CycleView | None, now: CycleView) -> Iterator[Event]:
    old = {finding.key: finding for finding in before.analysis.findings} if before else {}
    new = {finding.key: finding for finding in now.analysis.findings}
    for key, finding in new.items():
        if key not in old:
            severity = finding.severity.name.lower()
            marked = finding.severity is Severity.CRITICAL
            yield Event(now.at, "finding", f"{finding.slug} on {finding.scope}", finding.summary, severity, marked)
    for key, finding in old.items():
        if key not in new:
            yield Event(now.at, "cleared", f"{finding.slug} on {finding.scope} is over")


def _actions(now: CycleView, records: Sequence[ActionRecord]) -> Iterator[Event]:
    if now.decision is None:
        return
    outcomes = {outcome.action_id: outcome for outcome in now.outcomes}
    names = {endpoint.address: name for name, endpoint in now.frame.topology.endpoints.items()}
    for action in now.decision.actions:
        outcome = outcomes.get(action.id)
        title = _action_title(action, names)
        if outcome is not None and outcome.status not in (Status.APPLIED, Status.ADVISED):
            yield Event(now.at, "outcome", f"{title}: {outcome.status}", outcome.detail, "warning")
        elif _is_news(action, records):
            advised = outcome is None or outcome.status is Status.ADVISED
            yield Event(now.at, "action", f"advised: {title}" if advised else title, action.reason, marked=not advised)
    for verdict in now.decision.verdicts:
        severity = "warning" if verdict.state == "ineffective" else "info"
        yield Event(
            now.at,
            "verdict",
            f"{verdict.state}: {_titles(records, verdict.action_id, names)}",
            verdict.detail,
            severity,
        )


def _is_news(action: Action, records: Sequence[ActionRecord]) -> bool:
    if action.undo_of is not None or action.before is None or action.after is None:
        return True
    last = next((record.action.at for record in reversed(records) if record.action.key == action.key), None)
    return last is None or action.at - last > FOLLOW_UP_S


def _action_title(action: Action, names: Mapping[str, str]) -> str:
    lever = action.key.lever
    verb = "undo " if action.undo_of is not None else ""
    return (
        f"{verb}{NAMES.get(lever, lever.value)} of {names.get(action.key.target, action.key.target)}: "
        f"{lever_value(lever, action.before)} → {lever_value(lever, action.after)}"
    )


def _titles(records: Sequence[ActionRecord], action_id: str, names: Mapping[str, str]) -> str:
    found = next((record.action for record in records if record.action.id == action_id), None)
    return action_id if found is None else _action_title(found, names)
