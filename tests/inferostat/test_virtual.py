"""The agent in virtual time: its levers, its scrapes, its story, and that a run is the same each time it is played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuators.model import Action, Backend, Lever, LeverKey, LeverReading, LeverValue, Outcome, Status
from actuators.values import same
from analyzers.model import Analysis, Finding, Layer, Scope, ScopeKind, Severity
from collector.history import History
from collector.model import SignalState
from collector.sources.fetch import FetchError
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import target
from fleetsim.file_sd import POOL
from fleetsim.scenario import Scenario, parse_scenario
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.moves import MoveLog
from fleetsim.virtual.result import Run
from fleetsim.virtual.simulation import Simulation
from fleetsim.virtual.telemetry import ScrapeRefused
from fleetsim.virtual.world import World
from inferostat.loop import CycleReport
from inferostat.planner import Decision, Mode, PlannerState, Verdict
from inferostat.virtual import POLICY, VirtualAgent, play, play_agent
from inferostat.virtual.agent import AgentFailed, agent_config
from inferostat.virtual.backend import VirtualBackend
from inferostat.virtual.sensing import VirtualFetcher, VirtualTargets
from inferostat.virtual.story import Story
from tests.analyzers.frames import frame

ENGINES = {"10.0.0.1:8000": "engine-0", "10.0.0.2:8000": "engine-1", "10.0.0.3:8000": "engine-2"}
FIRST = next(iter(ENGINES))
SCALE = LeverKey(Lever.SCALE, POOL, POOL)
BREAKER = LeverKey(Lever.BREAKER, POOL, POOL)
BUDGET = LeverKey(Lever.RETRY_BUDGET, POOL, POOL)
WEIGHT = LeverKey(Lever.WEIGHT, POOL, FIRST)


class FakePool:
    def __init__(self) -> None:
        self.wanted = 3
        self.ready = 2

    def scale(self, replicas: int) -> None:
        self.wanted = replicas


class FakeGateway:
    """`deaf`: takes a limit and does nothing."""

    def __init__(self) -> None:
        self.limits: dict[str, float | None] = {}
        self.weights = dict.fromkeys(ENGINES.values(), 100.0)
        self.deaf = False

    def limit(self, lever: str) -> float | None:
        return self.limits.get(lever)

    def set_limit(self, lever: str, value: float | None) -> None:
        if not self.deaf:
            self.limits[lever] = value

    def weight(self, name: str) -> float | None:
        return self.weights.get(name)

    def set_weight(self, name: str, weight: float) -> None:
        self.weights[name] = weight


class Fleet:
    """Levers of three engines, and a backend over them."""

    def __init__(self) -> None:
        self.pool, self.gateway, self.log = FakePool(), FakeGateway(), MoveLog()
        controls = Controls(Simulation(), self.pool, self.gateway, (1, 8), self.log)
        self.backend = VirtualBackend("virtual", controls, lambda: ENGINES, POLICY)

    async def reading(self, key: LeverKey) -> LeverReading:
        (reading,) = await self.backend.read((key,))
        return reading

    async def move(self, key: LeverKey, before: LeverValue, after: LeverValue, name: str = "a") -> Outcome:
        return await self.backend.apply(Action(name, 5.0, key, before, after, "test"), 5.0)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_the_backend_is_one(fleet: Fleet) -> None:
    assert isinstance(fleet.backend, Backend)


async def test_levers_are_read_as_they_stand(fleet: Fleet) -> None:
    fleet.gateway.limits = {"breaker": 40.0, "retry_budget": 100.0}
    fleet.gateway.weights["engine-0"] = 25.0
    assert await fleet.reading(SCALE) == LeverReading(SCALE, known=True, value=3.0, ready=2)
    assert await fleet.reading(BREAKER) == LeverReading(BREAKER, known=True, value=40.0)
    assert (await fleet.reading(BUDGET)).value is None  # a limit that limits nothing is none
    assert (await fleet.reading(WEIGHT)).value == 25.0


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (LeverKey(Lever.WEIGHT, POOL, "10.0.0.9:8000"), "expected endpoint 10.0.0.9:8000 at the gateway"),
        (LeverKey(Lever.WAKE, POOL, FIRST), "expected one of admission, breaker"),
        (LeverKey(Lever.SCALE, "other", "other"), "expected pool default, found other"),
    ],
)
async def test_what_the_fleet_does_not_have_is_unknown_and_never_zero(fleet: Fleet, key: LeverKey, reason: str) -> None:
    reading = await fleet.reading(key)
    assert (reading.known, reading.value) == (False, None)
    assert reading.reason.startswith(reason)
    outcome = await fleet.move(key, None, 1.0)
    assert outcome.status is Status.FAILED
    assert fleet.log.moves == []


async def test_an_endpoint_the_gateway_does_not_know_yet_is_unknown(fleet: Fleet) -> None:
    del fleet.gateway.weights["engine-0"]
    assert not (await fleet.reading(WEIGHT)).known


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [(SCALE, 3.0, 5.0), (BREAKER, None, 40.0), (BUDGET, None, 20.0), (WEIGHT, 100.0, 0.0)],
)
async def test_a_move_is_written_read_back_and_logged_in_our_name(
    fleet: Fleet, key: LeverKey, before: LeverValue, after: LeverValue
) -> None:
    outcome = await fleet.move(key, before, after)
    assert (outcome.status, outcome.readback) == (Status.APPLIED, after)
    assert (await fleet.reading(key)).value == after
    (moved,) = fleet.log.moves
    assert (moved.actor, moved.lever, moved.before, moved.after) == (POLICY, key.lever.value, before, after)
    assert moved.target == ("engine-0" if key is WEIGHT else POOL)
    assert moved.reason == "test"


async def test_a_lever_that_another_writer_moved_is_left_alone(fleet: Fleet) -> None:
    fleet.pool.wanted = 6
    outcome = await fleet.move(SCALE, 3.0, 5.0)
    assert (outcome.status, outcome.readback, fleet.pool.wanted) == (Status.CONFLICT, 6.0, 6)


async def test_an_action_is_carried_out_once(fleet: Fleet) -> None:
    assert (await fleet.move(SCALE, 3.0, 5.0)).status is Status.APPLIED
    fleet.pool.wanted = 3
    assert (await fleet.move(SCALE, 3.0, 5.0)).status is Status.APPLIED
    assert fleet.pool.wanted == 3
    assert (await fleet.move(SCALE, 3.0, 5.0, name="b")).status is Status.APPLIED
    assert fleet.pool.wanted == 5


async def test_what_the_fleet_refuses_has_failed_and_says_why(fleet: Fleet) -> None:
    outcome = await fleet.move(SCALE, 3.0, 9.0)
    assert (outcome.status, fleet.pool.wanted) == (Status.FAILED, 3)
    assert "expected 1 to 8 replicas, found 9" in outcome.detail


async def test_a_limit_that_does_not_take_is_ignored(fleet: Fleet) -> None:
    fleet.gateway.deaf = True
    outcome = await fleet.move(BREAKER, None, 40.0)
    assert (outcome.status, outcome.readback) == (Status.IGNORED, None)


async def test_the_last_endpoint_in_rotation_stays_in(fleet: Fleet) -> None:
    fleet.gateway.weights.update({"engine-1": 0.0, "engine-2": 0.0})
    outcome = await fleet.move(WEIGHT, 100.0, 0.0)
    assert (outcome.status, fleet.gateway.weights["engine-0"]) == (Status.FAILED, 100.0)


_values = st.none() | st.floats(min_value=-5.0, max_value=150.0)


@settings(deadline=None, max_examples=100)
@given(key=st.sampled_from([SCALE, BREAKER, BUDGET, WEIGHT]), before=_values, after=_values)
async def test_an_applied_move_reads_as_asked_and_any_other_leaves_the_lever_as_it_was(
    key: LeverKey, before: LeverValue, after: LeverValue
) -> None:
    fleet = Fleet()
    found = await fleet.reading(key)
    outcome = await fleet.move(key, before, after)
    now = await fleet.reading(key)
    if outcome.status is Status.APPLIED:
        assert same(key.lever, now.value, after)
    else:
        assert now == found
        assert fleet.log.moves == []


async def test_the_backend_is_not_for_fleets_outside() -> None:
    with pytest.raises(Exception, match="inferostat simulate"):
        VirtualBackend.from_options("edge", {})


class FakeTelemetry:
    """Targets and bodies by name; a body of None is refused."""

    def __init__(self, bodies: Mapping[str, str | None]) -> None:
        self.bodies = dict(bodies)

    def targets(self) -> list[dict[str, Any]]:
        return [
            {"targets": [f"10.0.0.{n + 1}:8000"], "labels": {"__role__": "engine", "pool": POOL, "name": name}}
            for n, name in enumerate(self.bodies)
        ]

    def body(self, name: str, now: float) -> str:
        body = self.bodies[name]
        if body is None:
            raise ScrapeRefused("connection refused")
        return body


BUSY = (Path(__file__).parents[1] / "fixtures" / "live" / "vllm-0.32-busy.prom").read_text()


async def test_bodies_become_frames_and_a_refusal_a_target_that_is_down() -> None:
    telemetry: Any = FakeTelemetry({"engine-0": BUSY, "engine-1": None})
    simulation = Simulation(7.0)
    source = ScrapeSource(
        VirtualTargets(telemetry),
        ScrapeSettings(interval_s=1.0, jitter=0.0),
        clock=lambda: simulation.now,
        fetcher=VirtualFetcher(telemetry, simulation),
    )
    made = await source.collect(7.0)
    assert made.at == 7.0
    assert made.endpoints.cell("engine-0", "requests_running").known == 4.0
    assert made.endpoints.cell("engine-1", "requests_running").state is SignalState.NEVER_SEEN
    up, down = made.targets
    assert (up.up, up.scraped_at, up.duration_s) == (True, 7.0, 0.0)
    assert (down.up, down.failing_since) == (False, 7.0)
    assert "expected a connection to 10.0.0.2:8000, found connection refused" in (down.error or "")
    await source.close()


async def test_a_fetch_that_is_refused_is_a_fetch_error() -> None:
    telemetry: Any = FakeTelemetry({"engine-0": None})
    with pytest.raises(FetchError, match="refused"):
        await VirtualFetcher(telemetry, Simulation()).fetch(target("10.0.0.1:8000", name="engine-0"), 1.0, 1000)


def test_targets_follow_the_fleet() -> None:
    telemetry: Any = FakeTelemetry({"engine-0": BUSY})
    targets = VirtualTargets(telemetry)
    assert targets.engines() == {"10.0.0.1:8000": "engine-0"}
    before = targets.targets()
    assert targets.targets() is before
    telemetry.bodies["engine-1"] = BUSY
    assert list(targets.engines().values()) == ["engine-0", "engine-1"]


def _finding(slug: str, summary: str) -> Finding:
    scope = Scope(ScopeKind.POOL, POOL)
    return Finding(slug, "IS0000", Severity.WARNING, scope, 0.0, 0.9, summary, Layer.QUEUE)


def _report(
    findings: Sequence[Finding] = (),
    actions: Sequence[tuple[Action, Outcome]] = (),
    verdicts: Sequence[Verdict] = (),
) -> CycleReport:
    modes = {action.id: Mode.ACT for action, _ in actions}
    moved = tuple(action for action, _ in actions)
    decision = Decision(0.0, moved, (), tuple(verdicts), (), PlannerState(), modes)
    outcomes = tuple(outcome for _, outcome in actions)
    return CycleReport(1, 0.0, frame(0.0, {}), Analysis(0.0, tuple(findings)), (), decision, outcomes, "")


def test_findings_are_told_when_they_begin_and_when_they_are_over() -> None:
    story = Story()
    story.take(1.0, _report([_finding("saturated", "3 wait")]), ENGINES)
    story.take(2.0, _report([_finding("saturated", "5 wait"), _finding("vulnerable", "it is")]), ENGINES)
    story.take(3.0, _report([_finding("vulnerable", "it is")]), ENGINES)
    told = [(entry.t, entry.kind, entry.target, entry.state, entry.reason) for entry in story.entries]
    assert told == [
        (1.0, "finding", "pool/default", "saturated", "3 wait"),
        (2.0, "finding", "pool/default", "vulnerable", "it is"),
        (3.0, "finding", "pool/default", "saturated over", "5 wait"),
    ]


def test_actions_are_told_with_the_fleets_names_and_what_came_of_them() -> None:
    story = Story()
    cut = Action("w", 1.0, WEIGHT, 100.0, 50.0, "slow")
    scale = Action("s", 1.0, SCALE, 3.0, 4.0, "queues")
    done = Outcome("w", 1.0, Status.APPLIED, 50.0)
    failed = Outcome("s", 1.0, Status.FAILED, None, "no quota")
    story.take(1.0, _report(actions=[(cut, done), (scale, failed)]), ENGINES)
    story.take(9.0, _report(verdicts=[Verdict("w", "verified", "itl fell")]), ENGINES)
    told = [(e.t, e.kind, e.lever, e.target, e.state, e.reason) for e in story.entries]
    assert told == [
        (1.0, "action", "weight", "engine-0", "applied", "100 -> 50: slow"),
        (1.0, "action", "scale", "default", "failed", "3 -> 4: queues; no quota"),
        (9.0, "effect", "weight", "engine-0", "verified", "itl fell"),
    ]


def scenario(**more: Any) -> Scenario:
    """Two small engines for a minute, with room for four."""
    document = {
        "name": "small",
        "about": "two engines",
        "truth": {"what": "nothing"},
        "engines": 2,
        "max_replicas": 4,
        "load": 0.7,
        "cold_start_s": 10.0,
        "duration_s": 60.0,
        "trigger": {"start_s": 20.0, "end_s": 40.0},
        **more,
    }
    return parse_scenario(document, "test")


OVERLOAD = {"duration_s": 45.0, "timeline": [{"at_s": 10.0, "kind": "load", "factor": 2.5}]}


@pytest.fixture(scope="module")
def overloaded() -> Run:
    return play(scenario(**OVERLOAD), seed=7)


def test_the_agent_is_told_what_an_operator_knows() -> None:
    told = scenario(
        clients={"timeout_s": 7.0, "stream": True, "retries": 3, "app_retries": 2},
        slo={"ttft_s": 1.5, "tpot_s": 0.1},
        hardware={"price_usd_per_gpu_hour": 4.0, "max_num_seqs": 32},
        min_replicas=2,
    )
    config = agent_config(told, Path("j.sqlite"))
    pool = config.pools[POOL]
    assert (pool.clients.timeout, pool.clients.timeout_on, pool.clients.retries) == (7.0, "first_token", 3)
    assert (pool.slo.ttft, pool.slo.tpot) == (1.5, 0.1)
    assert (pool.price_usd_per_gpu_hour, pool.max_num_seqs, pool.scaling.ready_within) == (4.0, 32, 20.0)
    assert set(pool.levers) == VirtualBackend.levers
    bounds = pool.levers[Lever.SCALE]
    assert (bounds.minimum, bounds.maximum, bounds.verify_within) == (2.0, 4.0, 20.0)
    assert config.mode is Mode.ACT
    assert agent_config(scenario(cold_start_s=0.0), Path("j.sqlite")).pools[POOL].scaling.ready_within == 2.0


def _text(run: Run) -> str:
    return repr([run.calls, run.tasks, run.allocations, run.moves, run.timeline, run.generated_tokens])


def test_a_run_is_the_same_each_time_and_another_seed_is_another_run(overloaded: Run) -> None:
    again, other = (_text(play_agent(World(scenario(**OVERLOAD), seed=seed))) for seed in (7, 8))
    assert _text(overloaded) == again
    assert again != other


def test_under_an_overload_the_agent_finds_acts_and_is_logged(overloaded: Run) -> None:
    run = overloaded
    assert run.policy == POLICY
    assert {move.actor for move in run.moves} == {POLICY}
    assert any(move.lever == "scale" and not move.down for move in run.moves)
    applied = [entry for entry in run.timeline if entry.kind == "action" and entry.state == "applied"]
    assert [(entry.t, entry.lever) for entry in applied] == [(move.t, move.lever) for move in run.moves]
    assert "saturated" in {entry.state for entry in run.timeline if entry.kind == "finding"}
    assert [entry.t for entry in run.timeline if entry.kind == "fault"] == [10.0]


def test_a_healthy_fleet_is_left_alone() -> None:
    run = play(scenario(load=0.5), duration_s=40.0)
    assert run.moves == ()
    assert all(call.outcome in ("ok", "unfinished") for call in run.calls)


async def test_a_cycle_that_fails_inside_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(scenario())
    agent = VirtualAgent(world, tmp_path / "journal.sqlite")
    world.run_until(1.0)
    monkeypatch.setattr(agent.loop, "history", _Broken())
    with pytest.raises(AgentFailed, match="at 1 s: analysis failed"):
        await agent.cycle()
    await agent.close()


class _Broken(History):
    def span_s(self) -> float:
        raise ZeroDivisionError("made for the test")
