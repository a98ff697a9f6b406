"""The journal: what is written survives, what is damaged is kept, and nobody acts on a journal that fails."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.model import (
    Action,
    Direction,
    Expectation,
    Lever,
    LeverKey,
    LeverReading,
    LeverValue,
    Outcome,
    Status,
)
from inferostat.journal import Held, Journal, JournalError, JournalReader, Pending, resolve
from inferostat.journal.records import plain

BREAKER = LeverKey(Lever.BREAKER, "default", "default")
SCALE = LeverKey(Lever.SCALE, "default", "default")
EXPECT = Expectation("queue_wait_s", "pool/default", Direction.DOWN, 1.5, 130.0)


def _action(
    action_id: str,
    before: LeverValue = None,
    after: LeverValue = 10.0,
    key: LeverKey = BREAKER,
    at: float = 100.0,
) -> Action:
    return Action(action_id, at, key, before, after, "storm", ("retry-storm:pool/default:90",))


def _done(action: Action, status: Status = Status.APPLIED, at: float = 101.0) -> Outcome:
    return Outcome(action.id, at, status, action.after, "")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.start(tmp_path / "journal.sqlite", 0.0)
    yield opened
    opened.close()


def _carry_out(journal: Journal, action: Action, status: Status = Status.APPLIED) -> None:
    journal.begin(action, "edge")
    journal.finish(action, _done(action, status))


def test_everything_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.sqlite"
    first = replace(_action("a1"), expect=EXPECT)
    undo = replace(_action("a2", 10.0, None), undo_of="a1")
    journal = Journal.start(path, 0.0)
    decision = journal.decide(100.0, 7, "breaker off -> 10", {"expect": EXPECT, "value": float("nan")})
    journal.begin(first, "edge", decision)
    journal.finish(first, _done(first))
    journal.verify("a1", 131.0, "ineffective", "expected at most 1.5, found 4")
    journal.begin(undo, "edge")
    journal.begin(_action("a3"), "edge")
    journal.finish(_action("a3"), _done(_action("a3"), Status.ADVISED))
    journal.close()

    again = Journal.start(path, 200.0)
    advice, taken_back, record = again.actions()
    assert again.recovered is None
    assert (record.action, record.backend, record.outcome) == (first, "edge", _done(first))
    assert record.verification is not None and record.verification.state == "ineffective"
    assert record.undone_by == "a2"
    assert (taken_back.action, taken_back.outcome) == (undo, None)
    assert advice.outcome is not None and advice.outcome.status is Status.ADVISED
    assert again.unfinished() == (Pending(undo, "edge"),)
    assert again.action("a1") == record and again.action("a9") is None
    (decided,) = again.decisions()
    assert (decided.cycle, decided.document["value"]) == (7, None)
    assert decided.document["expect"]["direction"] == "down"
    again.close()


def test_an_id_is_written_once_and_finished_once(journal: Journal) -> None:
    _carry_out(journal, _action("a1"))
    with pytest.raises(JournalError, match="not written before"):
        journal.begin(_action("a1"), "edge")
    with pytest.raises(JournalError, match="one outcome"):
        journal.finish(_action("a1"), _done(_action("a1")))
    with pytest.raises(JournalError, match="action begun"):
        journal.finish(_action("never-begun"), _done(_action("never-begun")))
    assert len(journal.actions()) == 1


def test_held_is_what_differs_from_where_we_found_it(journal: Journal) -> None:
    _carry_out(journal, _action("a1", None, 40.0))
    _carry_out(journal, _action("a2", 40.0, 20.0), Status.FAILED)
    _carry_out(journal, _action("a3", 4.0, 5.0, SCALE))
    advice = _action("a4", 5.0, 7.0, SCALE)
    journal.begin(advice, "edge")
    journal.finish(advice, _done(advice, Status.ADVISED))
    assert journal.held() == {BREAKER: Held(40.0, 101.0), SCALE: Held(5.0, 101.0)}
    _carry_out(journal, _action("a5", 40.0, None))
    _carry_out(journal, _action("a6", 5.0, 4.0, SCALE))
    assert journal.held() == {}
    _carry_out(journal, _action("a7", None, 9.0))
    journal.release(BREAKER)
    assert journal.held() == {}


def test_trials_wait_for_a_verdict_or_an_undo(journal: Journal) -> None:
    for number in range(4):
        _carry_out(journal, replace(_action(f"a{number}"), expect=EXPECT))
    _carry_out(journal, _action("no-promise"))
    journal.verify("a0", 110.0, "verified", "it fell")
    _carry_out(journal, replace(_action("u1", 10.0, None), undo_of="a1"))
    assert [record.action.id for record in journal.unverified()] == ["a2", "a3"]


def test_pause_and_quarantine(journal: Journal) -> None:
    other = Journal.attach(journal.path)
    other.pause(50.0, "alice", "change window")
    other.pause(60.0, "bob", "me too")
    other.close()
    pause = journal.paused()
    assert pause is not None and (pause.at, pause.by, pause.reason) == (50.0, "alice", "change window")
    journal.resume()
    assert journal.paused() is None
    journal.quarantine(SCALE, 200.0, "no effect")
    assert journal.quarantined(199.0)[SCALE].reason == "no effect"
    assert journal.quarantined(200.0) == {}


def test_one_agent_at_a_time(journal: Journal) -> None:
    with pytest.raises(JournalError, match="another one running"):
        Journal.start(journal.path, 0.0)
    journal.close()
    Journal.start(journal.path, 0.0).close()


def test_reader_beside_a_writer_is_never_in_the_way(journal: Journal) -> None:
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        reader = JournalReader.open(journal.path)
        try:
            while not stop.is_set():
                records = reader.actions(5)
                assert all(record.action.reason == "storm" for record in records)
        except Exception as error:  # handed to the test's own thread
            errors.append(error)
        finally:
            reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100):
        _carry_out(journal, _action(f"a{number}"))
    stop.set()
    thread.join()
    assert errors == []


def test_reader_cannot_write_and_needs_a_file(journal: Journal, tmp_path: Path) -> None:
    reader = JournalReader.open(journal.path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM actions")
    reader.close()
    for opener in (JournalReader.open, Journal.attach):
        with pytest.raises(JournalError, match="found no file"):
            opener(tmp_path / "none.sqlite")


@pytest.mark.parametrize("damage", ["garbage", "truncated", "overwritten"])
def test_damaged_file_is_moved_aside_and_kept(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal.start(path, 0.0)
    for number in range(100):
        _carry_out(journal, _action(f"a{number}"))
    journal.close()
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"not a database, by no means" * 100)
    elif damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content[4096 : len(content) - 4096] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)

    again = Journal.start(path, 1_800_000_000.0)
    assert again.recovered is not None and "check the limits in force" in again.recovered
    _carry_out(again, _action("a1"))
    assert len(again.actions()) == 1
    again.close()
    aside = tmp_path / "journal.sqlite.damaged-20270115T080000Z"
    assert aside.read_bytes() == bytes(content)


def test_another_database_or_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    connection.close()
    with pytest.raises(JournalError, match="something else"):
        Journal.start(path, 0.0)

    newer = tmp_path / "journal.sqlite"
    Journal.start(newer, 0.0).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(JournalError, match="found 99"):
        Journal.start(newer, 0.0)
    assert sorted(item.suffix for item in tmp_path.iterdir()) == [".lock", ".lock", ".sqlite", ".sqlite"]


def test_not_writable_says_what_to_do(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    for path in (blocker / "journal.sqlite", tmp_path):
        with pytest.raises(JournalError, match="check space, permissions"):
            Journal.start(path, 0.0)


def test_full_disk_is_an_error_and_loses_nothing(journal: Journal) -> None:
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(JournalError, match="full"):
        for number in range(10_000):
            journal.begin(_action(f"a{number}"), "edge")
    written = len(journal.actions(10_000))
    assert written > 0 and len(journal.unfinished()) == written
    journal._connection.execute("PRAGMA max_page_count = 100000")
    journal.begin(_action("after"), "edge")


def test_file_removed_or_replaced_under_us_is_an_error(journal: Journal) -> None:
    journal.path.rename(journal.path.with_name("moved"))
    with pytest.raises(JournalError, match="found it gone"):
        journal.begin(_action("a1"), "edge")
    journal.path.write_bytes(b"")
    with pytest.raises(JournalError, match="found it replaced"):
        journal.begin(_action("a1"), "edge")


def test_size_is_bounded_and_what_matters_is_kept(tmp_path: Path) -> None:
    journal = Journal.start(tmp_path / "journal.sqlite", 0.0, max_bytes=400_000)
    journal.begin(_action("open"), "edge")
    _carry_out(journal, replace(_action("trial"), expect=EXPECT))
    _carry_out(journal, _action("held", 4.0, 5.0, SCALE))
    filler = "x" * 6000
    for number in range(200):
        decision = journal.decide(float(number), number, "summary", {"filler": filler})
        journal.begin(_action(f"a{number}"), "edge", decision)
        journal.finish(_action(f"a{number}"), _done(_action(f"a{number}"), Status.FAILED))
    kept = {record.action.id for record in journal.actions(10_000)}
    assert {"open", "trial", "held", "a199"} <= kept and "a0" not in kept
    assert [pending.action.id for pending in journal.unfinished()] == ["open"]
    assert set(journal.held()) == {BREAKER, SCALE}
    assert journal.decisions(1)[0].cycle == 199
    journal.close()
    # a look at the size every 64 writes lets in 22 decisions of two pages each, 180 kB, in between
    assert journal.path.stat().st_size < 700_000


CYCLES = """
import sys
from pathlib import Path
from actuators.model import Action, Lever, LeverKey, Outcome, Status
from inferostat.journal import Journal
journal = Journal.start(Path(sys.argv[1]), 0.0)
for number in range(10**9):
    action = Action(f"a{number}", 1.0, LeverKey(Lever.BREAKER, "p", "p"), None, 1.0, "why")
    journal.begin(action, "edge")
    print(number, flush=True)
    journal.finish(action, Outcome(action.id, 1.0, Status.APPLIED, 1.0))
"""


def test_killed_while_writing_keeps_every_action_it_told_of(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with subprocess.Popen([sys.executable, "-c", CYCLES, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
        told = 50 + len(process.stdout.read().split())
    journal = Journal.start(path, 2.0)
    assert journal.recovered is None
    assert told <= len(journal.actions(10**6)) <= told + 1
    assert len(journal.unfinished()) <= 1
    journal.close()


values = st.none() | st.integers(0, 100).map(float)


@given(before=values, after=values, found=values)
def test_resolve_follows_reality(before: LeverValue, after: LeverValue, found: LeverValue) -> None:
    outcome = resolve(_action("a1", before, after), LeverReading(BREAKER, True, found), 200.0)
    assert outcome is not None
    expected = Status.CONFLICT
    if found == after:
        expected = Status.APPLIED
    elif found == before:
        expected = Status.FAILED
    assert (outcome.status, outcome.readback, outcome.action_id) == (expected, found, "a1")


def test_resolve_waits_for_a_known_reading() -> None:
    assert resolve(_action("a1"), LeverReading(BREAKER, known=False, reason="gone"), 200.0) is None


def test_plain_values() -> None:
    document = {BREAKER: (EXPECT, float("-inf")), "path": Path("/x"), "set": {1}, "flag": True}
    assert plain(document) == {
        "breaker:default": [
            {
                "measure": "queue_wait_s",
                "scope": "pool/default",
                "direction": "down",
                "bound": 1.5,
                "deadline": 130.0,
            },
            None,
        ],
        "path": "/x",
        "set": [1],
        "flag": True,
    }
