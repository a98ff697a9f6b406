"""Findings, decisions and actions as JSON."""

from __future__ import annotations

from actuators.model import LeverKey
from analyzers.model import Finding
from inferostat.api import cells
from inferostat.api.cells import Document
from inferostat.api.view import ActionRecord
from inferostat.planner.model import Consideration, Decision


def finding_document(finding: Finding) -> Document:
    return {
        "id": finding.id,
        "slug": finding.slug,
        "code": finding.code,
        "severity": finding.severity.name.lower(),
        "scope": str(finding.scope),
        "pool": finding.pool,
        "since": finding.since,
        "confidence": cells.number(finding.confidence),
        "summary": finding.summary,
        "layer": finding.layer.value,
        "runbook": f"/runbook/{finding.slug}",
        "evidence": [
            {
                "signal": item.signal,
                "observed": cells.number(item.observed),
                "expected": cells.number(item.expected),
                "unit": item.unit,
                "why": item.why,
            }
            for item in finding.evidence
        ],
        "advice": [
            {"lever": item.lever, "optimisation": item.optimisation.value, "text": item.text} for item in finding.advice
        ],
    }


def decision_document(decision: Decision) -> Document:
    return {
        "at": decision.at,
        "sentence": decision.sentence(),
        "actions": [action.id for action in decision.actions],
        "considered": [_consideration(item) for item in decision.considered],
    }


def _consideration(item: Consideration) -> Document:
    return {
        **_key(item.key),
        "result": item.result,
        "steps": [
            {"name": step.name.value, "value": cells.number(step.value), "reason": step.reason} for step in item.steps
        ],
    }


def _key(key: LeverKey) -> Document:
    return {"lever": key.lever.value, "pool": key.pool, "target": key.target}


def record_document(record: ActionRecord) -> Document:
    action, outcome, verdict = record.action, record.outcome, record.verdict
    expect = action.expect
    return {
        "id": action.id,
        "at": action.at,
        **_key(action.key),
        "before": cells.number(action.before),
        "after": cells.number(action.after),
        "reason": action.reason,
        "evidence": list(action.evidence),
        "undo_of": action.undo_of,
        "mode": record.mode,
        "expect": None
        if expect is None
        else {
            "measure": expect.measure,
            "scope": expect.scope,
            "direction": expect.direction.value,
            "bound": cells.number(expect.bound),
            "deadline": expect.deadline,
        },
        "outcome": None
        if outcome is None
        else {
            "at": outcome.at,
            "status": outcome.status.value,
            "readback": cells.number(outcome.readback),
            "detail": outcome.detail,
        },
        "verdict": None if verdict is None else {"state": verdict.state, "detail": verdict.detail},
    }
