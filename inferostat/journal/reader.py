"""Reading the journal, also while an agent writes it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from actuators.model import LeverKey, Status
from inferostat.journal.records import (
    ActionRecord,
    DecisionRecord,
    Held,
    Pause,
    Pending,
    Quarantine,
    action_of,
    key_of,
    record_of,
)
from inferostat.journal.schema import JournalError, connect, explained

_RECORDS = """
SELECT a.*, o.at AS o_at, o.status AS o_status, o.readback AS o_readback, o.detail AS o_detail,
  v.at AS v_at, v.state AS v_state, v.detail AS v_detail,
  (SELECT u.id FROM actions u WHERE u.undo_of = a.id ORDER BY u.seq DESC LIMIT 1) AS undone_by
FROM actions a LEFT JOIN outcomes o ON o.action_id = a.id LEFT JOIN verifications v ON v.action_id = a.id
"""


class JournalReader:
    """Queries. May be called from any thread; each takes well under a millisecond for a page of records."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path) -> JournalReader:
        """Open an existing journal read-only; raises JournalError when there is none or it is damaged."""
        if not path.exists():
            raise JournalError(f"journal {path}: expected a journal, found no file: start the agent or give its path")
        with explained(path, "a readable journal"):
            return cls(path, connect(path, read_only=True))

    def actions(self, limit: int = 100, since: float | None = None) -> tuple[ActionRecord, ...]:
        """The newest actions, newest first; with `since` (unix s) only those decided at or after it."""
        rows = self._query(
            _RECORDS + "WHERE a.at >= ? ORDER BY a.seq DESC LIMIT ?",
            (float("-inf") if since is None else since, limit),
        )
        return tuple(record_of(row) for row in rows)

    def action(self, action_id: str) -> ActionRecord | None:
        rows = self._query(_RECORDS + "WHERE a.id = ?", (action_id,))
        return record_of(rows[0]) if rows else None

    def decisions(self, limit: int = 100) -> tuple[DecisionRecord, ...]:
        """The newest decisions, newest first."""
        rows = self._query("SELECT * FROM decisions ORDER BY id DESC LIMIT ?", (limit,))
        return tuple(
            DecisionRecord(r["id"], r["at"], r["cycle"], r["summary"], json.loads(r["document"])) for r in rows
        )

    def unfinished(self) -> tuple[Pending, ...]:
        """Actions without an outcome, oldest first: the agent ended before it was written."""
        rows = self._query("SELECT * FROM actions WHERE id NOT IN (SELECT action_id FROM outcomes) ORDER BY seq")
        return tuple(Pending(action_of(row), row["backend"]) for row in rows)

    def unverified(self) -> tuple[ActionRecord, ...]:
        """Applied actions that promised an effect and are neither judged nor undone yet, oldest first."""
        rows = self._query(
            _RECORDS + "WHERE o.status = ? AND a.expect IS NOT NULL AND v.action_id IS NULL ORDER BY a.seq",
            (Status.APPLIED,),
        )
        return tuple(record for record in map(record_of, rows) if record.undone_by is None)

    def held(self) -> dict[LeverKey, Held]:
        """The values we set that differ from what we found, and still answer for."""
        return {key_of(row): Held(row["value"], row["since"]) for row in self._query("SELECT * FROM held")}

    def quarantined(self, now: float) -> dict[LeverKey, Quarantine]:
        """Levers in quarantine at `now`."""
        rows = self._query("SELECT * FROM quarantine WHERE until > ?", (now,))
        return {(key := key_of(row)): Quarantine(key, row["until"], row["reason"]) for row in rows}

    def paused(self) -> Pause | None:
        rows = self._query("SELECT * FROM pause")
        return Pause(rows[0]["at"], rows[0]["by"], rows[0]["reason"]) if rows else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._lock, explained(self.path, "to read it"):
            return self._connection.execute(sql, values).fetchall()
