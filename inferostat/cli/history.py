"""`inferostat actions|pause|resume`: the audit trail, and a human's hand on everything at once."""

from __future__ import annotations

import getpass
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from inferostat.cli.output import FINE, Format, Output, emit, fail, table, told
from inferostat.cli.state import embedded_dir
from inferostat.config import ConfigError, load
from inferostat.journal import ActionRecord, Journal, JournalError, JournalReader

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration whose journal to use; default: the embedded fleet's."),
]


def journal_path(config: Path | None) -> Path:
    """Where the agent of this configuration (or of the embedded fleet) keeps its journal."""
    if config is None:
        return embedded_dir() / "journal.sqlite"
    try:
        return load(config).journal
    except ConfigError as error:
        raise fail(str(error)) from error


def actions(
    config: ConfigOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    since: Annotated[float | None, typer.Option(help="Only the last SECONDS.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """What was done, why, what came of it, and what was undone."""
    after = None if since is None else time.time() - since
    try:
        reader = JournalReader.open(journal_path(config))
        try:
            records, paused = reader.actions(limit, after), reader.paused()
        finally:
            reader.close()
    except JournalError as error:
        raise fail(str(error)) from error
    if paused is not None:
        told.print(
            f"acting is PAUSED since {_clock(paused.at)} by {paused.by}: {paused.reason or 'no reason given'}",
            style="yellow",
        )
    shown = table("Actions", "time", "lever", "target", "from", "to", "outcome", "effect", "reason")
    for record in records:
        action = record.action
        shown.add_row(
            _clock(action.at),
            str(action.key.lever),
            action.key.target,
            _text(action.before),
            _text(action.after),
            str(record.outcome.status) if record.outcome else "open",
            _effect(record),
            action.reason,
        )
    emit({"paused": paused is not None, "actions": [_document(record) for record in records]}, output, [shown])


def pause(
    config: ConfigOption = None,
    reason: Annotated[str, typer.Option(help="Why, for those who find it paused.")] = "",
) -> None:
    """Stop acting everywhere at once; sensing and advice go on. Takes effect within one cycle."""
    with_journal(config, lambda journal: journal.pause(time.time(), getpass.getuser(), reason))
    told.print("paused: nothing will be moved until `inferostat resume`")


def resume(config: ConfigOption = None) -> None:
    """End a pause."""
    with_journal(config, lambda journal: journal.resume())
    told.print("resumed")


def with_journal(config: Path | None, work: Any) -> int:
    """Write to the journal beside the agent that owns it."""
    try:
        journal = Journal.attach(journal_path(config))
        try:
            work(journal)
        finally:
            journal.close()
    except JournalError as error:
        raise fail(str(error)) from error
    return FINE


def _document(record: ActionRecord) -> dict[str, Any]:
    action = record.action
    return {
        "id": action.id,
        "at": action.at,
        "lever": action.key.lever.value,
        "pool": action.key.pool,
        "target": action.key.target,
        "from": action.before,
        "to": action.after,
        "reason": action.reason,
        "evidence": list(action.evidence),
        "undo_of": action.undo_of,
        "undone_by": record.undone_by,
        "outcome": None
        if record.outcome is None
        else {
            "status": record.outcome.status.value,
            "readback": record.outcome.readback,
            "detail": record.outcome.detail,
        },
        "verification": None
        if record.verification is None
        else {"state": record.verification.state, "detail": record.verification.detail},
    }


def _effect(record: ActionRecord) -> str:
    if record.verification is not None:
        return record.verification.state
    return "undo" if record.action.undo_of else ("on trial" if record.action.expect else "")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _text(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"
