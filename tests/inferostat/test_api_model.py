"""The read model behind the page: cells, rows, events, headline and rings, without HTTP."""

from __future__ import annotations

import math
from dataclasses import replace

from actuators.model import Outcome, Status
from analyzers.model import Analysis, Severity
from collector.model import Cell, Censor, Frame, Quantile, SignalState, Table, Topology
from inferostat.api import cells
from inferostat.api.events import Event, changes
from inferostat.api.fleet import FaultInfo, FleetInfo
from inferostat.api.headline import headline
from inferostat.api.rows import endpoint_rows
from inferostat.api.series import SeriesRing
from inferostat.api.state import KEPT_ACTIONS, StatusBoard
from inferostat.api.view import CycleView
from tests.inferostat.api_fakes import board_after
from tests.inferostat.incident import FAULT_FROM, FAULT_TO, POOL, START, Incident


def titles(events: list[Event], kind: str) -> list[str]:
    return [event.title for event in events if event.kind == kind]


def empty_view() -> CycleView:
    table = Table.empty((), ())
    view = Incident().cycle(0)
    return replace(view, frame=Frame(START, table, table, table, Topology()), analysis=Analysis(START))


def test_cells_never_carry_nan_or_infinity() -> None:
    assert cells.number(math.nan) is None and cells.number(math.inf) is None and cells.number(None) is None
    stale = cells.cell(Cell(math.nan, SignalState.STALE, math.inf), "s")
    assert stale == {
        "value": None,
        "state": "unknown(stale)",
        "unit": "s",
        "reason": "the last sample is too old",
    }
    idle = cells.cell(Cell(0.0, SignalState.IDLE, 1.0))
    assert (idle["value"], idle["state"], idle["reason"]) == (0.0, "idle", "no work")


def test_every_state_has_its_reason() -> None:
    assert set(cells.REASONS) == set(SignalState)


def test_a_percentile_in_an_outer_bucket_says_on_which_side_it_is() -> None:
    assert cells.quantile(Quantile(10.0, Censor.ABOVE))["censor"] == "above"
    assert "censor" not in cells.quantile(Quantile(1.0))


def test_a_warming_replica_is_a_row_of_unknowns() -> None:
    board = board_after(FAULT_FROM + 35)
    assert board.view is not None and board.recent is not None
    rows = endpoint_rows(board.view, board.recent)
    assert [row["name"] for row in rows] == [f"engine-{i}" for i in range(5)]
    assert rows[4]["state"] == "warming"
    fresh = rows[4]["cells"]
    assert isinstance(fresh, dict)
    assert {cell["value"] for cell in fresh.values()} == {None}


def test_a_crashed_replica_is_shown_as_such_and_a_stopped_one_is_gone() -> None:
    incident = Incident()
    view = incident.cycle(0)
    assert view.fleet is not None
    first, *others = view.fleet.replicas
    gone = replace(others[0], name="old", address="127.0.0.1:1", state="stopped")
    view = replace(view, fleet=replace(view.fleet, replicas=(replace(first, state="crashed"), *others, gone)))
    board = StatusBoard("1", "act")
    board.publish(view)
    assert board.recent is not None
    rows = endpoint_rows(view, board.recent)
    assert rows[0]["state"] == "crashed"
    assert "old" not in {row["name"] for row in rows}


def test_events_tell_the_incident_once() -> None:
    events = list(board_after(160).events)
    assert titles(events, "fault") == ["fault: slow 1.7x: engine-0, engine-1, engine-2, engine-3"]
    assert titles(events, "recovery") == ["fault over: slow 1.7x: engine-0, engine-1, engine-2, engine-3"]
    assert titles(events, "target") == ["engine-3 cannot be read"]
    assert titles(events, "finding") == [
        "vulnerable on pool/default",
        "retry-storm-incipient on pool/default",
        "retry-storm on pool/default",
        "engine-hung on endpoint/engine-3",
    ]
    assert titles(events, "verdict") == ["verified: concurrency limit of default: off → 64 requests"]


def test_a_limit_that_follows_the_queue_is_one_event_until_it_is_off() -> None:
    events = list(board_after(160).events)
    moves = titles(events, "action")
    assert moves[0] == "concurrency limit of default: off → 64 requests"
    assert moves[-1].endswith("→ off")
    assert len(moves) == 3  # on, the first move after a long rest, off
    assert len(board_after(160).records) > 10


def test_failed_actions_are_news_and_advice_is_called_advice() -> None:
    incident = Incident()
    views = list(incident.cycles(FAULT_FROM + 9))
    view = views[-1]
    assert view.decision is not None and view.decision.actions
    action = view.decision.actions[0]
    failed = Outcome(action.id, view.at, Status.FAILED, detail="expected 200, found 500; look at the gateway")
    found = changes(views[-2], replace(view, outcomes=(failed,)), ())
    assert titles(found, "outcome") == ["concurrency limit of default: off → 64 requests: failed"]
    advised = changes(views[-2], replace(view, outcomes=(Outcome(action.id, view.at, Status.ADVISED),)), ())
    assert titles(advised, "action") == ["advised: concurrency limit of default: off → 64 requests"]
    assert not any(event.marked for event in advised if event.kind == "action")


def test_load_and_replica_changes_are_events() -> None:
    incident = Incident()
    before, now = incident.cycle(0), incident.cycle(1)
    assert now.fleet is not None
    first, *others = now.fleet.replicas
    fleet = replace(now.fleet, load_factor=2.0, replicas=(replace(first, state="draining"), *others))
    found = changes(before, replace(now, fleet=fleet), ())
    assert [(event.kind, event.title) for event in found] == [
        ("fault", "load now x2"),
        ("replica", "engine-0 is draining"),
    ]


def test_headline_levels() -> None:
    assert headline(None).level == "unknown"
    assert headline(empty_view()).title == "No endpoints known"
    calm = headline(Incident().cycle(0))
    assert (calm.level, calm.name, calm.detail) == (
        "ok",
        "Healthy",
        "4 of 4 endpoints answer. No limit is in force.",
    )
    storm = headline(list(Incident().cycles(FAULT_TO))[-1])
    assert (storm.level, storm.name) == ("critical", "Retry storm")
    assert storm.title.endswith("(and 1 more)")
    view = Incident().cycle(0)
    dark = replace(view.frame, targets=tuple(replace(target, up=False) for target in view.frame.targets))
    assert headline(replace(view, frame=dark)).title == "No endpoint can be read"


def test_information_is_no_alarm() -> None:
    view = Incident().cycle(0)
    assert {finding.severity for finding in view.analysis.findings} == {Severity.INFO}
    assert headline(view).level == "ok"


def test_rings_are_bounded_and_forget_pools() -> None:
    ring = SeriesRing(kept=3)
    for at in range(5):
        ring.append(POOL, float(at), {"offered_rate": 1.0, "breaker": None})
    columns = ring.document()[POOL]
    assert isinstance(columns, dict)
    assert (columns["at"], columns["breaker"]) == ([2.0, 3.0, 4.0], [None] * 3)
    ring.keep_only(())
    assert ring.document() == {}


def test_records_are_bounded() -> None:
    board = StatusBoard("1", "act")
    incident = Incident()
    view = list(incident.cycles(FAULT_FROM + 9))[-1]
    assert view.decision is not None
    (action,) = view.decision.actions
    for number in range(KEPT_ACTIONS + 5):
        decision = replace(view.decision, actions=(replace(action, id=f"x{number}"),), modes={})
        board.publish(replace(view, decision=decision, outcomes=()))
    assert len(board.records) == KEPT_ACTIONS
    assert board.records[-1].action.id == f"x{KEPT_ACTIONS + 4}"
    assert board.records[-1].mode == "act"


def test_the_chart_says_how_many_report() -> None:
    series = board_after(FAULT_FROM + 30).series.document()[POOL]
    assert isinstance(series, dict)
    assert (series["reporting"][0], series["reporting"][-1]) == (4.0, 3.0)
    assert series["waiting"][-1] == 3 * 38


def test_fleet_document_of_the_admin_api() -> None:
    info = FleetInfo.from_admin(
        {
            "target": 5,
            "ready": 4,
            "max_replicas": 8,
            "replicas": [{"name": "engine-0", "address": "127.0.0.1:1", "state": "warming", "since": 3, "g": 1.7}],
            "faults": [
                {"kind": "slow", "target": "engine-0", "g": 1.7, "g_decode": 1.0, "g_prefill": 1.0},
                {"kind": "slow", "target": "engine-1", "g": 1.7, "g_decode": 1.0, "g_prefill": 1.0},
                {"kind": "slow", "target": "engine-2", "g": 1.0, "g_decode": 1.3, "g_prefill": 1.0},
                {"kind": "hang", "target": "engine-3"},
            ],
            "loop_lag_p99_s": None,
        },
        load_factor=2.0,
        clients={"goodput": 3.0},
    )
    assert (info.target, info.ready, info.loop_lag_p99_s) == (5, 4, None)
    assert info.replicas[0].since == 3.0 and info.replicas[0].build is None
    assert [fault.text() for fault in info.faults] == [
        "slow 1.7x: engine-0, engine-1",
        "slow decode 1.3x: engine-2",
        "hang: engine-3",
    ]
    assert FleetInfo.from_admin({"replicas": "?", "faults": None}) == FleetInfo()


def test_a_fault_that_spreads_is_news_only_where_it_is_new() -> None:
    incident = Incident()
    before, now = incident.cycle(0), incident.cycle(1)
    assert before.fleet is not None and now.fleet is not None
    slow, more = (
        FaultInfo("slow", ("engine-0", "engine-1"), 1.7),
        FaultInfo("slow", ("engine-1", "engine-2"), 1.7),
    )
    found = changes(
        replace(before, fleet=replace(before.fleet, faults=(slow,))),
        replace(now, fleet=replace(now.fleet, faults=(more,))),
        (),
    )
    assert [event.title for event in found] == [
        "fault: slow 1.7x: engine-2",
        "fault over: slow 1.7x: engine-0",
    ]


def test_records_of_an_earlier_run_come_first_and_keep_their_fate() -> None:
    earlier = board_after(FAULT_FROM + 12).records
    board = StatusBoard("1", "act")
    board.remember(earlier)
    assert board.records == earlier
    assert all(record.outcome is not None for record in board.records)


def test_a_starting_storm_is_named_before_the_saturation_it_causes() -> None:
    view = list(Incident().cycles(FAULT_FROM + 9))[-1]
    incipient = view.analysis.findings[-1]
    assert incipient.slug == "retry-storm-incipient"
    full = replace(incipient, slug="saturated", severity=Severity.CRITICAL, since=START)
    shown = headline(replace(view, analysis=replace(view.analysis, findings=(full, incipient))))
    assert (shown.level, shown.name) == ("critical", "Retry storm incipient")
