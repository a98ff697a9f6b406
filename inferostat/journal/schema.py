"""The journal's file: SQLite tables, their version, and opening it so that nothing is lost unseen.

Durability: WAL with synchronous=FULL. A killed process loses nothing even with NORMAL, because written pages
are in the kernel; a machine that loses power would lose the last transactions, and with them the knowledge of
a limit that is in force at a gateway on another machine. There are a few writes a cycle, each 0.2 ms
(0.05 ms with NORMAL) as measured on an SSD, so FULL is affordable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

VERSION = 1
APPLICATION_ID = 0x1F057A7  # tells the file from any other SQLite database
BUSY_TIMEOUT_S = 2.0
WAL_LIMIT_BYTES = 4 * 1024 * 1024
_SIDE_FILES = ("", "-wal", "-shm")

_TABLES = """
CREATE TABLE decisions (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, cycle INTEGER NOT NULL, summary TEXT NOT NULL,
  document TEXT NOT NULL
);
CREATE TABLE actions (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at REAL NOT NULL,
  decision_id INTEGER REFERENCES decisions(id) ON DELETE SET NULL, backend TEXT NOT NULL,
  lever TEXT NOT NULL, pool TEXT NOT NULL, target TEXT NOT NULL, before REAL, after REAL,
  reason TEXT NOT NULL, evidence TEXT NOT NULL, expect TEXT, undo_of TEXT
);
CREATE INDEX actions_decision ON actions(decision_id);
CREATE INDEX actions_undo ON actions(undo_of) WHERE undo_of IS NOT NULL;
CREATE TABLE outcomes (
  action_id TEXT PRIMARY KEY REFERENCES actions(id) ON DELETE CASCADE, at REAL NOT NULL, status TEXT NOT NULL,
  readback REAL, detail TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE verifications (
  action_id TEXT PRIMARY KEY REFERENCES actions(id) ON DELETE CASCADE, at REAL NOT NULL, state TEXT NOT NULL,
  detail TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE held (
  lever TEXT NOT NULL, pool TEXT NOT NULL, target TEXT NOT NULL, value REAL, baseline REAL,
  action_id TEXT NOT NULL, since REAL NOT NULL, PRIMARY KEY (lever, pool, target)
) WITHOUT ROWID;
CREATE TABLE quarantine (
  lever TEXT NOT NULL, pool TEXT NOT NULL, target TEXT NOT NULL, until REAL NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (lever, pool, target)
) WITHOUT ROWID;
CREATE TABLE pause (
  one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL
);
"""


class JournalError(Exception):
    """The journal cannot be read or written, so nothing may be done: expected, found, what to do."""


@contextlib.contextmanager
def explained(path: Path, expected: str) -> Iterator[None]:
    """Turn SQLite's and the system's errors into JournalError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorname", None)
        found = f"{error} ({code})" if code else str(error)
        advice = "check space, permissions and the disk; no action is taken without it"
        if isinstance(error, sqlite3.IntegrityError):
            advice = "an action has one beginning and one outcome, please report this as a bug"
        raise JournalError(f"journal {path}: expected {expected}, found {found}: {advice}") from error


def lock_file(path: Path) -> int:
    """Descriptor of the agent's own lock, released when the process ends however it ends.

    Raises JournalError when another agent has it: two would carry out the same decisions.
    """
    with explained(path, "to open its lock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise JournalError(
            f"journal {path}: expected to be its only agent, found another one running: stop it or give another path"
        ) from error
    return descriptor


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A checked connection to an existing or (unless `read_only`) a new journal.

    Raises sqlite3.DatabaseError when the file is damaged, JournalError when it is sound and not ours to use.
    """
    mode = "ro" if read_only else "rwc"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.row_factory = sqlite3.Row
        _check_identity(connection, path)
        if not read_only:
            _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if tables and application != APPLICATION_ID:
        raise JournalError(f"journal {path}: expected a journal, found a database of something else: give another path")
    if version > VERSION:
        raise JournalError(
            f"journal {path}: expected version {VERSION} or older, found {version}: "
            "it was written by a newer release, use that one or give another path"
        )


def _prepare(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only takes effect before the first table
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
    elif (verdict := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(verdict)


def move_aside(path: Path, now: float) -> Path:
    """Rename a damaged journal with its side files; returns its new name. Nothing is deleted."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for suffix in _SIDE_FILES:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
