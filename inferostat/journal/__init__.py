"""The crash-safe record of decisions and actions: what was sent, what became of it, what is still held."""

from inferostat.journal.reader import JournalReader
from inferostat.journal.records import (
    ActionRecord,
    DecisionRecord,
    Held,
    Pause,
    Pending,
    Quarantine,
    Verification,
)
from inferostat.journal.resolve import resolve
from inferostat.journal.schema import JournalError
from inferostat.journal.writer import Journal

__all__ = [
    "ActionRecord",
    "DecisionRecord",
    "Held",
    "Journal",
    "JournalError",
    "JournalReader",
    "Pause",
    "Pending",
    "Quarantine",
    "Verification",
    "resolve",
]
