"""kill -9 of the whole agent while it acts on a real fleet and a real Envoy: nothing is lost, nothing doubled.

INFEROSTAT_KILLS is the number of kills (5 unless set), as in test_journal_kill, which kills a smaller agent.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from actuators.model import Action, Lever, LeverKey, LeverValue, Outcome, Status
from benchmarks.accounts import at_envoy, at_fleet, limit_value, limits_in_force
from benchmarks.forwarder import Write
from benchmarks.kill import kill_often, row, summary
from inferostat.journal import ActionRecord

KILLS = int(os.environ.get("INFEROSTAT_KILLS", "5"))
BREAKER_KEY = "circuit_breakers.llm.default.max_requests"


@pytest.mark.component
async def test_no_action_lost_and_none_doubled_at_envoy_and_fleet(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    result = await kill_often(KILLS, seed, tmp_path)
    for number, kill in enumerate(result.kills, 1):
        print(row(number, kill))
    print(summary(result))
    for kill in result.kills:
        assert kill.found == kill.demanded, "what was left open is settled by what was true"
        assert kill.differing == (), "the journal holds what is in force"
    assert result.envoy.clean, result.envoy
    assert result.fleet.clean, result.fleet
    assert result.differing == ()
    assert result.envoy.done > 0
    assert result.fleet.done > 0
    settled = {status for kill in result.kills for status in kill.found.values()}
    assert settled == {Status.APPLIED, Status.FAILED}, "both kinds of interrupted action were met"


def record(number: int, lever: Lever, value: LeverValue, status: Status | None = Status.APPLIED) -> ActionRecord:
    action = Action(f"a{number}", float(number), LeverKey(lever, "default", "default"), None, value, "test")
    outcome = None if status is None else Outcome(action.id, action.at, status, value)
    return ActionRecord(action, "envoy", outcome)


def breaker(*values: str) -> list[Write]:
    return [Write(0.0, "/runtime_modify", {BREAKER_KEY: value}) for value in values]


def test_a_clean_account_has_every_write_once_and_in_order() -> None:
    records = [
        record(0, Lever.BREAKER, 80.0),
        record(1, Lever.BREAKER, 90.0, Status.FAILED),
        record(2, Lever.BREAKER, 80.0),
        record(3, Lever.BREAKER, None),
    ]
    account = at_envoy(reversed(records), breaker("80", "80", ""), "llm")
    assert account.clean
    assert (account.done, account.seen) == (3, 3)


def test_a_write_that_envoy_never_saw_is_lost() -> None:
    account = at_envoy([record(0, Lever.BREAKER, 80.0), record(1, Lever.BREAKER, 90.0)], breaker("90"), "llm")
    assert account.lost == ("a0",)
    assert not account.clean


def test_a_write_that_envoy_saw_twice_is_doubled() -> None:
    account = at_envoy(
        [record(0, Lever.BREAKER, 80.0), record(1, Lever.BREAKER, 90.0)], breaker("80", "80", "90"), "llm"
    )
    assert account.doubled == ("breaker 80.0",)
    assert account.lost == account.unrecorded == ()


def test_a_write_of_a_failed_action_is_unrecorded_and_one_without_outcome_is_open() -> None:
    records = [record(0, Lever.BREAKER, 80.0, Status.FAILED), record(1, Lever.BREAKER, 90.0, None)]
    account = at_envoy(records, breaker("80"), "llm")
    assert account.unrecorded == ("breaker 80.0",)
    assert account.open == ("a1",)


def test_the_fleet_is_counted_by_request_id() -> None:
    def call(name: str | None, what: str = "PUT /admin/scale", status: int = 200) -> dict[str, object]:
        return {"request_id": name, "what": what, "status": status}

    records = [record(0, Lever.SCALE, 3.0), record(1, Lever.SCALE, 4.0), record(2, Lever.SCALE, 5.0, None)]
    log = [call("a0"), call("a1", status=409), call("x"), call(None, "POST /admin/faults")]
    sent = Write(0.0, "/admin/scale", {}, {"request_id": "a0"})
    account = at_fleet(records, log, [sent, replace(sent, at=1.0)])
    assert account.lost == ("a1",)
    assert account.doubled == ("a0",), "sent twice, though the fleet acted once"
    assert account.unrecorded == ("x",)
    assert account.open == ("a2",)


def test_limits_are_read_from_the_runtime_without_our_own_backend() -> None:
    entries = {
        BREAKER_KEY: {"final_value": "80"},
        "inferostat.llm.shed_retries_percent": {"final_value": "80"},
    }
    assert limits_in_force({"entries": entries}, "llm") == {
        Lever.BREAKER: 80.0,
        Lever.ADMISSION: None,
        Lever.RETRY_BUDGET: 20.0,
    }
    assert limit_value(Lever.ADMISSION, "") is None
