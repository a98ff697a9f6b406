"""Writing the journal: an action before it is sent, its outcome after."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from actuators.model import Action, LeverKey, Outcome, Status
from actuators.values import same
from inferostat.journal.reader import JournalReader
from inferostat.journal.records import action_row, key_row, to_json
from inferostat.journal.schema import VERSION, JournalError, connect, explained, lock_file, move_aside

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
_PRUNE_EVERY = 64  # writes between two looks at the size
_PRUNE_PARTS = 16  # one part of the rows is dropped at a time


class Journal(JournalReader):
    """The agent's journal. Every write is one durable transaction and raises JournalError when it fails.

    A write waits for the disk, 0.2 ms on an SSD: short enough to be called from the event loop.
    `recovered` says what happened to a damaged file at opening, or is None.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: int | None = None,
        recovered: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        super().__init__(path, connection)
        self.recovered = recovered
        self._agent_lock = lock
        self._max_bytes = max_bytes
        self._writes = 0
        self._inode = path.stat().st_ino

    @classmethod
    def start(cls, path: Path, now: float, max_bytes: int = DEFAULT_MAX_BYTES) -> Journal:
        """Open or create the journal as its one agent.

        A damaged file is moved aside, never deleted or overwritten, and `recovered` says so: the values held
        at that time are no longer known here, only at the systems themselves.
        """
        lock = lock_file(path)
        recovered = None
        try:
            with explained(path, "to open or create it"):
                try:
                    connection = connect(path)
                except sqlite3.OperationalError:
                    raise  # cannot be opened or is busy: not a sign of damage
                except sqlite3.DatabaseError as damage:
                    aside = move_aside(path, now)
                    connection = connect(path)
                    recovered = (
                        f"journal {path}: expected a sound file, found {damage}: it was moved to {aside} "
                        "and a new one begun; check the limits in force, what was held is forgotten"
                    )
            return cls(path, connection, lock, recovered, max_bytes)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def attach(cls, path: Path) -> Journal:
        """Open an existing journal beside its agent, to pause or resume it from another process."""
        JournalReader.open(path).close()
        with explained(path, "to open it"):
            return cls(path, connect(path))

    def check(self) -> None:
        """Write the file's own version once more: whether a write would succeed now. Raises JournalError."""
        with self._write("to take a write") as connection:
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def decide(self, at: float, cycle: int, summary: str, document: object) -> int:
        """Write a decision; `document` may hold dataclasses. Returns its id for `begin`."""
        with self._write("to write a decision") as connection:
            cursor = connection.execute(
                "INSERT INTO decisions (at, cycle, summary, document) VALUES (?, ?, ?, ?)",
                (at, cycle, summary, to_json(document)),
            )
            return int(cursor.lastrowid or 0)

    def begin(self, action: Action, backend: str, decision_id: int | None = None) -> None:
        """Write an action, before it is sent. An id that is there already is an error: do not send it."""
        with self._write("to write an action not written before") as connection:
            connection.execute(
                "INSERT INTO actions (id, at, decision_id, backend, lever, pool, target, before, after,"
                " reason, evidence, expect, undo_of) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                action_row(action, backend, decision_id),
            )

    def finish(self, action: Action, outcome: Outcome) -> None:
        """Write the outcome of an action begun, and with it what is held from now on."""
        with self._write("to write the one outcome of an action begun") as connection:
            connection.execute(
                "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?)",
                (action.id, outcome.at, outcome.status.value, outcome.readback, outcome.detail),
            )
            if outcome.status is Status.APPLIED:
                _hold(connection, action, outcome.at)

    def verify(self, action_id: str, at: float, state: str, detail: str) -> None:
        """Write what an action did; a later word replaces an earlier one."""
        with self._write("to write the verdict on an action begun") as connection:
            connection.execute(
                "INSERT OR REPLACE INTO verifications VALUES (?, ?, ?, ?)", (action_id, at, state, detail)
            )

    def release(self, key: LeverKey) -> None:
        """Answer for a lever no longer, such as when another writer has taken it."""
        with self._write("to release a lever") as connection:
            connection.execute("DELETE FROM held WHERE lever = ? AND pool = ? AND target = ?", key_row(key))

    def quarantine(self, key: LeverKey, until: float, reason: str) -> None:
        with self._write("to write a quarantine") as connection:
            connection.execute(
                "INSERT OR REPLACE INTO quarantine VALUES (?, ?, ?, ?, ?)", (*key_row(key), until, reason)
            )

    def pause(self, at: float, by: str, reason: str) -> None:
        """Stop acting, in every process that reads this journal; the first pause stands until `resume`."""
        with self._write("to write the pause") as connection:
            connection.execute("INSERT OR IGNORE INTO pause VALUES (1, ?, ?, ?)", (at, by, reason))

    def resume(self) -> None:
        with self._write("to end the pause") as connection:
            connection.execute("DELETE FROM pause")

    def close(self) -> None:
        """Close the file and let another agent have it. May be called twice."""
        super().close()
        if self._agent_lock is not None:
            os.close(self._agent_lock)
            self._agent_lock = None

    @contextlib.contextmanager
    def _write(self, expected: str) -> Iterator[sqlite3.Connection]:
        with self._lock, explained(self.path, expected):
            self._check_in_place()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._writes += 1
            if self._writes % _PRUNE_EVERY == 0:
                self._prune()

    def _check_in_place(self) -> None:
        """A file deleted or replaced under us takes writes that nobody will ever read."""
        try:
            found = self.path.stat().st_ino
        except FileNotFoundError:
            found = None
        if found != self._inode:
            raise JournalError(
                f"journal {self.path}: expected the file opened at start, found it "
                f"{'gone' if found is None else 'replaced'}: restart the agent; no action is taken without it"
            )

    def _size(self) -> int:
        pages, free, page_bytes = (
            int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * page_bytes

    def _prune(self) -> None:
        """Drop the oldest records above the size allowed; never an action that is open, on trial or held.

        A part at a time, so that a cycle is not held up: a part of a full journal takes about 0.1 s.
        """
        if self._size() <= self._max_bytes:
            return
        while self._size() > self._max_bytes and self._drop_oldest():
            pass
        self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _drop_oldest(self) -> int:
        """Drop the oldest share of what may go; returns how many rows went. The newest always stay."""
        dropped = 0
        self._connection.execute("BEGIN IMMEDIATE")
        for table, statement in _PRUNE_STATEMENTS.items():
            rows = int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            dropped += self._connection.execute(statement, (rows // _PRUNE_PARTS,)).rowcount
        self._connection.execute("COMMIT")
        return dropped


_PRUNE_STATEMENTS = {
    "actions": """DELETE FROM actions WHERE seq IN (SELECT a.seq FROM actions a
       JOIN outcomes o ON o.action_id = a.id LEFT JOIN verifications v ON v.action_id = a.id
       WHERE (a.expect IS NULL OR o.status != 'applied' OR v.action_id IS NOT NULL)
         AND a.id NOT IN (SELECT action_id FROM held) ORDER BY a.seq LIMIT ?)""",
    "decisions": "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions ORDER BY id LIMIT ?)",
}


def _hold(connection: sqlite3.Connection, action: Action, at: float) -> None:
    """Hold the action's value, unless it brings the lever back to where it was before we first moved it."""
    where = "WHERE lever = ? AND pool = ? AND target = ?"
    row = connection.execute(f"SELECT baseline FROM held {where}", key_row(action.key)).fetchone()
    baseline = action.before if row is None else row["baseline"]
    connection.execute(f"DELETE FROM held {where}", key_row(action.key))
    if not same(action.key.lever, action.after, baseline):
        connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key_row(action.key), action.after, baseline, action.id, at),
        )
