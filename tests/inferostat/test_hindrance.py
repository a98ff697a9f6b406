"""What keeps the agent from acting: said once for a pool, with its onset, and not for what only comes and goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.model import Action, Lever, LeverKey, LeverReading, Outcome, Status
from analyzers.model import Finding
from inferostat.hindrance import Disobedience, JournalState, disobeyed, find
from inferostat.journal import Journal
from inferostat.planner.policy import LeverPolicy
from inferostat.self_check import JOURNAL_CHECK_S, SelfCheck

POLICY = LeverPolicy(cooldown_s=10.0, quarantine_s=300.0)
BREAKER = LeverKey(Lever.BREAKER, "a", "a")
WEIGHTS = tuple(LeverKey(Lever.WEIGHT, "a", f"10.0.0.{number}:80") for number in range(3))


def lost(key: LeverKey, reason: str = "expected an answer, found none; see its log") -> LeverReading:
    return LeverReading(key, known=False, reason=reason)


def known(key: LeverKey, reason: str = "") -> LeverReading:
    return LeverReading(key, known=True, value=100.0, reason=reason)


def outcome(status: Status) -> Outcome:
    return Outcome("x", 0.0, status, None, "expected to read back 8, found off; look for a proxy")


def found(*readings: LeverReading, previous: tuple[Finding, ...] = (), now: float = 50.0) -> list[Finding]:
    return list(find(readings, {}, JournalState(), previous, now))


def test_nothing_is_said_while_nothing_hinders() -> None:
    assert found(known(BREAKER), *map(known, WEIGHTS)) == []


def test_a_lever_that_no_system_shows_is_said_for_its_pool() -> None:
    (one,) = found(lost(BREAKER), *map(known, WEIGHTS))
    assert (one.slug, str(one.scope), one.pool) == ("controller-inert", "pool/a", "a")
    assert "1 of 2 levers" in one.summary and "expected an answer" in one.summary


def test_an_endpoint_that_is_not_there_yet_is_no_hindrance() -> None:
    assert found(known(BREAKER), lost(WEIGHTS[0]), known(WEIGHTS[1])) == []
    (one,) = found(known(BREAKER), *map(lost, WEIGHTS))
    assert [item.signal for item in one.evidence] == ["lever:weight"]


def test_the_onset_stays_while_it_lasts() -> None:
    first = found(lost(BREAKER), now=50.0)
    (later,) = found(lost(BREAKER), previous=tuple(first), now=90.0)
    assert later.since == 50.0 and later.id == first[0].id


def test_a_restart_that_a_back_end_saw_is_said() -> None:
    (one,) = found(known(BREAKER, "Envoy restarted 3 s ago and has lost the limits set before"))
    assert one.slug == "change-correlated" and "set again" in one.summary


def test_an_ignored_order_is_followed_by_longer_and_longer_pauses() -> None:
    pauses, item, now = [], None, 0.0
    for _ in range(8):
        item = disobeyed(item, outcome(Status.IGNORED), POLICY, now)
        pauses.append(item.until - now)
        now = item.until
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


def test_a_failed_order_is_tried_again_at_once_but_not_for_ever() -> None:
    pauses, item = [], None
    for _ in range(5):
        item = disobeyed(item, outcome(Status.FAILED), POLICY, 0.0)
        pauses.append(item.until)
    assert pauses == [0.0, 0.0, 10.0, 20.0, 40.0]


@given(st.lists(st.sampled_from([Status.IGNORED, Status.FAILED]), max_size=3000))
def test_a_pause_is_never_longer_than_the_quarantine(statuses: list[Status]) -> None:
    item: Disobedience | None = None
    for status in statuses:
        item = disobeyed(item, outcome(status), POLICY, 0.0)
        assert 0.0 <= item.until <= POLICY.quarantine_s


def test_a_lever_that_follows_again_is_trusted_again() -> None:
    check = SelfCheck()
    action = Action("x", 0.0, BREAKER, None, 8.0, "test")
    assert check.heed(action, outcome(Status.IGNORED), POLICY, 0.0) == 10.0
    (one,) = check.find((), None, (), 1.0, 15.0)
    assert one.slug == "actuation-ineffective" and "none is sent for 9 s" in one.summary
    assert check.heed(action, outcome(Status.APPLIED), POLICY, 10.0) is None
    assert check.find((), None, (), 11.0, 15.0) == ()
    assert check.heed(action, outcome(Status.IGNORED), POLICY, 20.0) == 30.0


@pytest.mark.parametrize("status", [Status.CONFLICT, Status.ADVISED])
def test_advice_and_another_writer_are_no_disobedience(status: Status) -> None:
    check = SelfCheck()
    assert check.heed(Action("x", 0.0, BREAKER, None, 8.0, "test"), outcome(status), POLICY, 0.0) is None
    assert check.find((), None, (), 1.0, 15.0) == ()


def test_a_journal_that_takes_no_writes_is_said_before_one_is_needed_and_checked_until_it_does(
    tmp_path: Path,
) -> None:
    journal, check = Journal.start(tmp_path / "j.sqlite", 0.0), SelfCheck()
    aside = tmp_path / "aside.sqlite"
    check.check_journal(journal, 0.0)
    assert check.journal_error is None
    journal.path.rename(aside)
    check.check_journal(journal, JOURNAL_CHECK_S)
    (one,) = check.find((), None, (), 1.0, 15.0)
    assert (one.slug, str(one.scope)) == ("controller-inert", "fleet/fleet")
    assert "expected the file opened at start, found it gone" in one.summary
    aside.rename(journal.path)
    check.check_journal(journal, JOURNAL_CHECK_S + 1.0)
    assert check.journal_error is None and check.find((), None, (), 2.0, 15.0) == ()
    journal.close()


def test_a_journal_lost_at_the_start_stays_said() -> None:
    (one,) = find((), {}, JournalState(recovered="expected a sound file, found damage: moved"), (), 1.0)
    assert one.slug == "change-correlated" and "The journal was lost" in one.summary
