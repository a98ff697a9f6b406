"""The loop itself, with a source and back ends made for it and a real journal: order, faults, restart, reload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from actuators.dry_run import DryRunBackend, DryRunOptions
from actuators.model import Action, Direction, Expectation, Lever, LeverKey, LeverReading, Outcome, Status
from analyzers.model import PoolSettings
from collector.model import Frame, Pool
from inferostat.journal import Journal
from inferostat.loop import CycleReport, Loop, LoopSettings
from inferostat.planner import Mode, Policy, PoolPolicy, ScalingPolicy
from inferostat.tracing import CycleTracer
from tests.analyzers.frames import frame

POOL = "default"
SCALE = LeverKey(Lever.SCALE, POOL, POOL)
BREAKER = LeverKey(Lever.BREAKER, POOL, POOL)
NOW = 1_000.0


class BusySource:
    """Two engines with 30 requests each: at ten a replica, the planner wants six of the two there are."""

    def __init__(self) -> None:
        self.change: Callable[[Frame], Frame] = lambda made: made

    async def collect(self, now: float) -> Frame:
        row = {"requests_running": 30.0, "requests_waiting": 0.0}
        return self.change(frame(now, {"engine-0": row, "engine-1": row}))

    async def close(self) -> None:
        """Nothing is open."""


class Watched(DryRunBackend):
    """A dry run that lets the test look, or do harm, at the moment of a write or a reading."""

    def __init__(self) -> None:
        values = {"scale:default": 2.0, "breaker:default": None}
        super().__init__("dry", DryRunOptions(levers=(Lever.SCALE, Lever.BREAKER), values=values))
        self.on_apply: Callable[[Action], None] = lambda action: None
        self.on_read: Callable[[], None] = lambda: None

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        self.on_read()
        return await super().read(keys)

    async def apply(self, action: Action, now: float) -> Outcome:
        self.on_apply(action)
        return await super().apply(action, now)


@dataclass
class Rig:
    """A loop and its parts. `restarted` is another loop on the same journal and the same world."""

    path: Path
    mode: Mode = Mode.ACT
    source: BusySource = field(default_factory=BusySource)
    backend: Watched = field(default_factory=Watched)

    def __post_init__(self) -> None:
        self.journal = Journal.start(self.path, NOW)
        self.loop = self.build()

    def build(self) -> Loop:
        scaling = ScalingPolicy(up_stabilisation_s=0.0, inflight_per_replica=10.0)
        pool = PoolPolicy(mode=self.mode, scaling=scaling)
        levers = {(POOL, Lever.SCALE): "dry", (POOL, Lever.BREAKER): "dry"}
        settings = LoopSettings(1.0, 5.0, Policy({POOL: pool}), {POOL: PoolSettings()}, levers)
        return Loop(self.source, {"dry": self.backend}, self.journal, settings, CycleTracer("test"))

    async def restarted(self, now: float) -> tuple[Outcome, ...]:
        self.journal.close()
        self.journal = Journal.start(self.path, now)
        self.loop = self.build()
        return await self.loop.recover(now)

    def left_open(self, key: LeverKey, before: float | None, after: float | None, **more: Any) -> Action:
        """An action that an earlier run wrote down and of which it did not live to see the outcome."""
        action = Action("left-open", NOW - 5.0, key, before, after, "test", **more)
        self.journal.begin(action, "dry")
        return action

    def done(self, name: str, key: LeverKey, before: float | None, after: float | None, **more: Any) -> Action:
        """An action that an earlier run carried out."""
        action = Action(name, NOW - 5.0, key, before, after, "test", **more)
        self.journal.begin(action, "dry")
        self.journal.finish(action, Outcome(name, NOW - 4.0, Status.APPLIED, after))
        return action


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "journal.sqlite")
    yield made
    made.journal.close()


def moved(report: CycleReport) -> Mapping[Lever, Status]:
    assert report.decision is not None
    pairs = zip(report.decision.actions, report.outcomes, strict=True)
    return {action.key.lever: outcome.status for action, outcome in pairs}


async def test_an_action_is_in_the_journal_before_it_is_sent_and_its_outcome_after(rig: Rig) -> None:
    seen: list[bool] = []
    rig.backend.on_apply = lambda action: seen.append(
        (record := rig.journal.action(action.id)) is not None and record.outcome is None
    )
    report = await rig.loop.run_cycle(NOW)
    assert moved(report) == {Lever.SCALE: Status.APPLIED}
    assert seen == [True]
    (record,) = rig.journal.actions()
    assert record.outcome is not None
    assert (record.action.before, record.action.after) == (2.0, 6.0)
    assert rig.journal.held()[SCALE].value == 6.0
    assert rig.journal.decisions()[0].cycle == report.number == 1
    assert "60 requests in flight over 10 a replica" in report.sentence
    assert set(report.phases) == {"sense", "analyze", "decide", "act", "total"}


async def test_nothing_is_sent_when_the_journal_cannot_be_written(rig: Rig) -> None:
    rig.path.rename(rig.path.with_name("elsewhere"))
    report = await rig.loop.run_cycle(NOW)
    assert moved(report) == {Lever.SCALE: Status.FAILED}
    assert "not sent: journal" in report.outcomes[0].detail
    assert rig.backend.actions == []
    assert "controller-inert" in {finding.slug for finding in report.analysis.findings}
    rig.path.with_name("elsewhere").rename(rig.path)
    assert moved(await rig.loop.run_cycle(NOW + 31.0)) == {Lever.SCALE: Status.APPLIED}


async def test_an_outcome_that_could_not_be_written_is_written_once_the_journal_is_back(rig: Rig) -> None:
    aside = rig.path.with_name("aside")

    def lose_journal(action: Action) -> None:
        rig.path.rename(aside)

    rig.backend.on_apply = lose_journal
    report = await rig.loop.run_cycle(NOW)
    assert moved(report) == {Lever.SCALE: Status.APPLIED}
    assert "outcome not written" in report.outcomes[0].detail
    aside.rename(rig.path)
    assert len(rig.journal.unfinished()) == 1
    await rig.loop.run_cycle(NOW + 1.0)
    assert rig.journal.unfinished() == ()
    assert rig.journal.held()[SCALE].value == 6.0
    assert len(rig.backend.actions) == 1


async def test_advice_is_written_down_and_not_sent(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "journal.sqlite", mode=Mode.ADVISE)
    try:
        assert moved(await rig.loop.run_cycle(NOW)) == {Lever.SCALE: Status.ADVISED}
        assert rig.backend.actions == []
        assert rig.journal.held() == {}
        assert len(rig.journal.actions()) == 1
    finally:
        rig.journal.close()


async def test_authority_can_be_taken_away_from_a_loop(rig: Rig) -> None:
    rig.loop.advise_only()
    assert moved(await rig.loop.run_cycle(NOW)) == {Lever.SCALE: Status.ADVISED}
    assert rig.backend.actions == []


async def test_while_paused_nothing_is_moved_and_the_reason_is_told(rig: Rig) -> None:
    report = await rig.loop.run_cycle(NOW, paused=True)
    assert moved(report) == {}
    assert "acting is paused" in report.sentence
    assert moved(await rig.loop.run_cycle(NOW + 1.0)) == {Lever.SCALE: Status.APPLIED}


async def test_a_back_end_that_raises_does_not_stop_the_loop(rig: Rig) -> None:
    def harm(action: Action) -> None:
        raise RuntimeError("no such luck")

    rig.backend.on_apply = harm
    report = await rig.loop.run_cycle(NOW)
    assert moved(report) == {Lever.SCALE: Status.FAILED}
    assert "no such luck" in report.outcomes[0].detail
    rig.backend.on_apply = lambda action: None
    assert moved(await rig.loop.run_cycle(NOW + 31.0)) == {Lever.SCALE: Status.APPLIED}


async def test_a_back_end_that_cannot_read_leaves_its_levers_unknown_and_unmoved(rig: Rig) -> None:
    def harm() -> None:
        raise RuntimeError("no such luck")

    rig.backend.on_read = harm
    report = await rig.loop.run_cycle(NOW)
    assert all(not reading.known and "no such luck" in reading.reason for reading in report.readings)
    assert moved(report) == {}


async def test_a_fault_in_thinking_moves_nothing_and_the_next_cycle_goes_on(rig: Rig) -> None:
    def broken(made: Frame) -> Frame:
        pools = {POOL: Pool(POOL, ("engine-0", "ghost"))}
        return replace(made, topology=replace(made.topology, pools=pools))

    rig.source.change = broken
    report = await rig.loop.run_cycle(NOW)
    assert report.error is not None
    assert "please report it as a bug" in report.sentence
    assert (report.decision, report.outcomes, rig.backend.actions) == (None, (), [])
    rig.source.change = lambda made: made
    assert moved(await rig.loop.run_cycle(NOW + 1.0)) == {Lever.SCALE: Status.APPLIED}


async def test_a_restart_settles_an_open_action_by_reality_and_never_sends_it(rig: Rig) -> None:
    action = rig.left_open(SCALE, 2.0, 6.0)
    (outcome,) = await rig.restarted(NOW)
    assert (outcome.action_id, outcome.status) == (action.id, Status.FAILED)
    assert rig.backend.actions == []
    assert rig.journal.held() == {}


async def test_a_restart_takes_up_an_open_action_that_was_carried_out(rig: Rig) -> None:
    action = rig.left_open(SCALE, 2.0, 6.0)
    await rig.backend.apply(action, NOW)
    (outcome,) = await rig.restarted(NOW)
    assert outcome.status is Status.APPLIED
    assert rig.loop.state.memory(SCALE).owned
    assert rig.loop.state.memory(SCALE).held == 6.0


async def test_an_open_action_whose_lever_is_unknown_is_settled_by_the_first_cycle_that_reads_it(rig: Rig) -> None:
    action = rig.left_open(BREAKER, None, 80.0)
    await rig.backend.apply(action, NOW)

    def harm() -> None:
        raise RuntimeError("not now")

    rig.backend.on_read = harm
    assert await rig.restarted(NOW) == ()
    await rig.loop.run_cycle(NOW)
    assert len(rig.journal.unfinished()) == 1
    rig.backend.on_read = lambda: None
    await rig.loop.run_cycle(NOW + 1.0)
    record = rig.journal.action(action.id)
    assert record is not None
    assert record.outcome is not None
    assert record.outcome.status is Status.APPLIED
    assert rig.loop.state.memory(BREAKER).held == 80.0
    assert POOL in rig.loop.state.episodes, "the limit is ours: the programme that takes it off goes on"
    assert [done.id for done in rig.backend.actions if done.key == BREAKER] == [action.id]


async def test_a_restart_remembers_what_is_held_on_trial_and_quarantined(rig: Rig) -> None:
    expect = Expectation("queue_wait_s", POOL, Direction.DOWN, 1.0, NOW + 60.0)
    action = rig.done("tried", BREAKER, None, 80.0, expect=expect)
    rig.journal.quarantine(SCALE, NOW + 100.0, "no effect")
    assert await rig.restarted(NOW) == ()
    memory = rig.loop.state.memory(BREAKER)
    assert (memory.owned, memory.held, memory.moved_at) == (True, 80.0, NOW - 4.0)
    assert memory.trial is not None
    assert memory.trial.action == action
    assert rig.loop.state.memory(SCALE).quarantined_until == NOW + 100.0
    assert rig.loop.state.episodes[POOL].engaged_at == NOW


async def test_without_a_limit_held_no_storm_programme_is_taken_up(rig: Rig) -> None:
    rig.done("up", SCALE, 2.0, 6.0)
    rig.done("on", BREAKER, None, 80.0)
    rig.done("off", BREAKER, 80.0, None)
    await rig.restarted(NOW)
    assert rig.loop.state.memory(SCALE).held == 6.0
    assert not rig.loop.state.memory(BREAKER).owned
    assert rig.loop.state.episodes == {}


async def test_what_is_held_is_remembered_as_the_system_spells_it(rig: Rig) -> None:
    """Systems count whole things: a value remembered with its fraction would look like another writer's."""
    rig.done("half", BREAKER, None, 80.4)
    await rig.restarted(NOW)
    assert rig.loop.state.memory(BREAKER).held == 80.0


async def test_a_reload_goes_on_where_the_old_loop_ended(rig: Rig) -> None:
    await rig.loop.run_cycle(NOW)
    old, rig.loop = rig.loop, rig.build()
    rig.loop.take_over(old)
    assert rig.loop.state.memory(SCALE).held == 6.0
    report = await rig.loop.run_cycle(NOW + 1.0)
    assert report.number == 2
    assert rig.loop.history.span_s() == pytest.approx(1.0)
    assert moved(report) == {}
    assert len(rig.backend.actions) == 1
