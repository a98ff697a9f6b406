"""Faults of what is sensed, apart from faults of what is watched: outages and broken contracts."""

from __future__ import annotations

import numpy as np

from analyzers.build import endpoint_scope, finding, pool_scope
from analyzers.model import (
    Advice,
    Context,
    Evidence,
    Finding,
    Layer,
    Optimisation,
    Report,
    Scope,
    ScopeKind,
    Severity,
)
from analyzers.targets import endpoint_targets, sight_lost, starting
from collector.history import History
from collector.model import Frame, Level, SignalState, Table, TargetRole, TargetStatus

# Above this share of unknown targets a pool's numbers do not stand for the pool.
OUTAGE_SHARE = 0.2
COUNTERS = ("generation_tokens", "prompt_tokens", "requests_by_finish_reason.stop", "preemptions")

_WAIT = Advice("weight", Optimisation.DELAY, "Hold: unknown data lowers nothing and sheds nothing")


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    return Report(
        (
            *_outages(history, frame, context, now),
            *_unreachable(frame, context, now),
            *_contracts(frame, context, now),
            *_counters(history, frame, context, now),
        )
    )


def _outages(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    findings: list[Finding] = []
    targets, blind = endpoint_targets(frame), sight_lost(frame)
    for name, pool in frame.topology.pools.items():
        watched = [targets[endpoint] for endpoint in pool.endpoints if endpoint in targets]
        watched = [target for target in watched if not starting(history, target, now)]
        lost = [target for target in watched if not target.up and (blind or not _refused(target))]
        if len(watched) < 2 or len(lost) <= OUTAGE_SHARE * len(watched):
            continue
        share = len(lost) / len(watched)
        findings.append(
            finding(
                "telemetry-outage",
                pool_scope(name),
                context,
                now,
                severity=Severity.CRITICAL,
                confidence=0.95,
                layer=Layer.TELEMETRY,
                pool=name,
                advice=(_WAIT,),
                summary=(f"{len(lost)} of {len(watched)} targets of pool {name} cannot be read: its load is unknown"),
                evidence=[Evidence("targets_unknown", share, OUTAGE_SHARE, lost[0].error or "cannot be read", "ratio")],
            )
        )
    return findings


def _refused(target: TargetStatus) -> bool:
    """A port that refuses is an engine that is gone, not a telemetry fault."""
    return target.scraped_at is not None and "refused" in (target.error or "").lower()


def _unreachable(frame: Frame, context: Context, now: float) -> list[Finding]:
    """Targets other than engines; those of engines are judged together with what the gateway sees of them."""
    return [
        finding(
            "target-unreachable",
            Scope(ScopeKind.TARGET, target.name),
            context,
            now,
            severity=Severity.WARNING,
            confidence=0.95,
            layer=Layer.TELEMETRY,
            advice=(_WAIT,),
            summary=(f"The {target.role} target {target.name} cannot be read: {target.error or 'no reason given'}"),
            evidence=[Evidence("up", 0.0, 1.0, target.error or "the target cannot be read", "bool")],
            onset=target.failing_since,
        )
        for target in frame.targets
        if not target.up and target.role is not TargetRole.ENGINE
    ]


def _contracts(frame: Frame, context: Context, now: float) -> list[Finding]:
    """Signals that were there and are gone, or that say two things at once."""
    findings: list[Finding] = []
    clashes = _conflicts(frame.endpoints)
    for target in frame.targets:
        clash = clashes.get(target.name, ())
        gone = target.missed if target.up else ()
        if not gone and not clash and not (target.up and target.warnings):
            continue
        evidence = [Evidence(signal, None, None, "was there before and is gone from this target") for signal in gone]
        evidence += [
            Evidence(signal, None, None, "the same series appears twice with different values") for signal in clash
        ]
        if not evidence:
            evidence = [Evidence("exposition", None, None, warning) for warning in target.warnings]
        hard = bool(gone or clash)
        findings.append(
            finding(
                "metric-contract",
                Scope(ScopeKind.TARGET, target.name),
                context,
                now,
                severity=Severity.WARNING if hard else Severity.INFO,
                confidence=0.95 if hard else 0.6,
                layer=Layer.TELEMETRY,
                evidence=evidence,
                advice=(_WAIT,),
                summary=(f"{target.name} does not keep its metric contract: {evidence[0].signal}: {evidence[0].why}"),
            )
        )
    return findings


def _conflicts(table: Table) -> dict[str, tuple[str, ...]]:
    rows, columns = np.nonzero(table.state == SignalState.CONFLICT)
    found: dict[str, tuple[str, ...]] = {}
    for row, column in zip(rows, columns, strict=True):
        name = table.rows[row]
        found[name] = (*found.get(name, ()), table.columns[column])
    return found


def _counters(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    """Counters that fall again and again while the process is the same: several processes answer in turn."""
    findings: dict[str, Finding] = {}
    for signal in COUNTERS:
        if signal not in frame.endpoints.columns:
            continue
        # Any window will do: the verdict is history's, over its own five minutes.
        state = history.rate(Level.ENDPOINT, signal, 3.5 * context.interval_s).state
        for number in np.flatnonzero(state == SignalState.INCONSISTENT):
            name = frame.endpoints.rows[number]
            if name in findings:
                continue
            findings[name] = finding(
                "metric-contract",
                endpoint_scope(name),
                context,
                now,
                severity=Severity.WARNING,
                confidence=0.95,
                layer=Layer.TELEMETRY,
                advice=(_WAIT,),
                pool=frame.topology.endpoints[name].pool if name in frame.topology.endpoints else None,
                summary=(
                    f"{name} has an inconsistent counter: {signal} fell more than once in 5 "
                    "minutes and the process did not restart"
                ),
                evidence=[
                    Evidence(
                        signal,
                        None,
                        None,
                        "as if each scrape were answered by another worker; its rate is "
                        "unknown until one process answers",
                    )
                ],
            )
    return list(findings.values())
