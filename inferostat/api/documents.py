"""The JSON documents of the API. Unknown numbers are null with a state beside them."""

from __future__ import annotations

from dataclasses import asdict

from collector.model import Cell, SignalState, Table, TargetStatus
from inferostat.api import cells, nouns
from inferostat.api.cells import Document
from inferostat.api.fleet import FleetInfo
from inferostat.api.headline import headline
from inferostat.api.pools import pool_documents, reading_document
from inferostat.api.rows import endpoint_rows
from inferostat.api.state import StatusBoard

SCHEMA_VERSION = 1
SHOWN_ACTIONS = 60
SHOWN_DECISIONS = 10


def envelope(now: float, **content: object) -> Document:
    """Every document says which form it has and when it was made."""
    return {"schema_version": SCHEMA_VERSION, "now": now, **content}


def status(board: StatusBoard, now: float, since: float | None) -> Document:
    """All the page needs, in one answer. Chart points only after `since` (unix s), all without it."""
    view, recent = board.view, board.recent
    document = envelope(
        now,
        version=board.version,
        mode=board.mode,
        embedded=board.embedded,
        started_at=board.started_at,
        paused=asdict(board.paused) if board.paused is not None else None,
        not_ready=board.not_ready(),
        headline=asdict(headline(view)),
        cycle=None,
        targets=[],
        pools=[],
        endpoints=[],
        findings=findings(board),
        decision=None,
        decisions=[nouns.decision_document(item) for item in list(board.decisions)[: -SHOWN_DECISIONS - 1 : -1]],
        actions=actions(board)[:SHOWN_ACTIONS],
        levers=[],
        fleet=None,
        events=[asdict(event) for event in reversed(board.events)],
        series=board.series.document(since),
    )
    if view is not None and recent is not None:
        document.update(
            cycle={
                "number": view.cycle,
                "at": view.at,
                "duration_s": view.duration_s,
                "interval_s": view.interval_s,
                "overran": view.overran,
                "report": view.report,
            },
            targets=targets(board, now),
            pools=pool_documents(view),
            endpoints=endpoint_rows(view, recent),
            decision=nouns.decision_document(view.decision) if view.decision is not None else None,
            levers=[reading_document(reading) for reading in view.readings],
            fleet=_fleet(view.fleet) if view.fleet is not None else None,
        )
    return document


def targets(board: StatusBoard, now: float) -> list[Document]:
    return [_target(target, now) for target in board.view.frame.targets] if board.view else []


def signals(board: StatusBoard) -> Document:
    """level -> row -> signal -> cell; a histogram's cell is its observation count as read."""
    if board.view is None:
        return {"endpoints": {}, "devices": {}, "routes": {}}
    frame = board.view.frame
    return {
        "endpoints": _table(frame.endpoints),
        "devices": _table(frame.devices),
        "routes": _table(frame.routes),
    }


def findings(board: StatusBoard) -> list[Document]:
    """Most severe first, then oldest first."""
    if board.view is None:
        return []
    ordered = sorted(board.view.analysis.findings, key=lambda finding: (-finding.severity, finding.since))
    return [nouns.finding_document(finding) for finding in ordered]


def decisions(board: StatusBoard) -> Document:
    latest = board.view.decision if board.view is not None else None
    return {
        "latest": nouns.decision_document(latest) if latest is not None else None,
        "acted": [nouns.decision_document(decision) for decision in reversed(board.decisions)],
    }


def actions(board: StatusBoard) -> list[Document]:
    """Newest first."""
    return [nouns.record_document(record) for record in reversed(board.records)]


def measures(board: StatusBoard) -> list[Document]:
    if board.view is None:
        return []
    return [
        {"name": measure.name, "scope": str(measure.scope), **cells.measure(measure)}
        for measure in board.view.analysis.measures
    ]


def _target(target: TargetStatus, now: float) -> Document:
    return {
        "name": target.name,
        "role": target.role.value,
        "url": target.url,
        "up": target.up,
        "error": target.error,
        "failing_since": target.failing_since,
        "age_s": cells.number(now - target.scraped_at) if target.scraped_at is not None else None,
        "duration_s": target.duration_s,
        "product": target.product,
        "warnings": list(target.warnings),
        "missed": list(target.missed),
    }


def _table(table: Table) -> Document:
    rows: Document = {}
    for index, row in enumerate(table.rows):
        values, states, ages = table.value[index], table.state[index], table.age_s[index]
        signals: Document = {
            column: cells.cell(Cell(float(values[c]), SignalState(int(states[c])), float(ages[c])))
            for c, column in enumerate(table.columns)
        }
        for name, column in table.histograms.items():
            histogram = column[index]
            state = table.histogram_state.get(name)
            signals[name] = cells.histogram(histogram, None if state is None else int(state[index]))
        rows[row] = signals
    return rows


def _fleet(fleet: FleetInfo) -> Document:
    return {
        "target": fleet.target,
        "ready": fleet.ready,
        "max_replicas": fleet.max_replicas,
        "loop_lag_p99_s": cells.number(fleet.loop_lag_p99_s),
        "load_factor": cells.number(fleet.load_factor),
        "clients": {name: cells.number(value) for name, value in fleet.clients.items()},
        "faults": [
            {"text": fault.text(), "kind": fault.kind, "targets": list(fault.targets), "until": fault.until}
            for fault in fleet.faults
        ],
        "replicas": [asdict(replica) for replica in fleet.replicas],
    }
