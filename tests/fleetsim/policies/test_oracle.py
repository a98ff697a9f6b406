import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.policies.demand import Work, losses
from fleetsim.policies.oracle import Oracle, Plan, Step, needed, plans
from fleetsim.scenario import load_scenario, names
from tests.fleetsim.policies.looks import Bench, scenario

SPIKE = scenario(
    engines=4,
    max_replicas=12,
    load=0.5,
    cold_start_s=60,
    duration_s=900,
    trigger={"start_s": 300, "end_s": 600},
    timeline=[{"at_s": 300, "kind": "load", "factor": 3}, {"at_s": 600, "kind": "load"}],
)


def test_work_follows_load_events_ramps_and_prompts() -> None:
    ramp = scenario(
        load=0.5,
        timeline=[
            {"at_s": 100, "kind": "load", "factor": 2, "ramp_s": 20},
            {"at_s": 160, "kind": "load", "prompt_scale": 1.5},
        ],
    )
    at = Work(ramp).at
    assert [at(t) for t in (0.0, 100.0, 110.0, 130.0, 160.0)] == pytest.approx([0.5, 0.5, 0.75, 1.0, 0.75])


def test_a_day_swings_around_its_load() -> None:
    day = scenario(load=0.6, duration_s=1200, traffic={"rate": "diurnal", "swing": 0.5, "period_s": 1200})
    assert [Work(day).at(t) for t in (0.0, 300.0, 600.0, 900.0)] == pytest.approx([0.6, 0.9, 0.6, 0.3])
    morning = day.model_copy(update={"duration_s": 600.0})
    assert sum(Work(morning).at(t + 0.5) for t in range(600)) / 600 == pytest.approx(0.6, rel=1e-4)


def test_a_tenant_counts_with_its_share_and_a_fan_out_with_its_calls() -> None:
    tenants = [{"name": "a", "share": 3}, {"name": "b"}]
    flood = scenario(load=0.4, tenants=tenants, timeline=[{"at_s": 9, "kind": "load", "factor": 5, "tenant": "b"}])
    assert Work(flood).at(10.0) == pytest.approx(0.4 * 2)
    agents = scenario(load=0.4, workflow={"fanout": 2}, timeline=[{"at_s": 9, "kind": "load", "fanout": 6}])
    assert Work(agents).at(10.0) == pytest.approx(0.4 * 3)


def test_losses_end_with_the_recovery_the_restart_or_the_run() -> None:
    faults = scenario(
        duration_s=500,
        cold_start_s=30,
        cluster={"restart_s": 10, "replicas_per_node": 2, "spot": ["engine-0"]},
        timeline=[
            {"at_s": 50, "kind": "slow", "targets": ["engine-1"], "g": 2},
            {"at_s": 60, "kind": "crash", "targets": ["engine-2"]},
            {"at_s": 70, "kind": "hang", "targets": ["engine-3"]},
            {"at_s": 80, "kind": "node", "node": 0, "state": "down"},
            {"at_s": 90, "kind": "recover", "targets": ["engine-1"]},
            {"at_s": 95, "kind": "reclaim", "targets": ["engine-0"], "notice_s": 5},
        ],
    )
    found = [(loss.endpoint, loss.start, loss.end, loss.share) for loss in losses(faults)]
    assert found == [
        ("engine-1", 50, 90, 0.5),
        ("engine-2", 60, 100, 1.0),
        ("engine-3", 70, 500, 1.0),
        ("engine-0", 80, 500, 1.0),
        ("engine-1", 80, 500, 1.0),
        ("", 95, 130, 1.0),
    ]


def test_replicas_are_asked_for_a_cold_start_ahead_and_held_a_minute() -> None:
    schedule = needed(SPIKE, 0.75)
    assert [n for _, n in schedule] == [3, 8, 3]
    (_, up, down) = schedule
    assert 300 - 60 - 45 <= up[0] <= 300 - 60
    assert 600 + 45 <= down[0] <= 600 + 75


def test_candidates_of_a_spike() -> None:
    found = plans(SPIKE)
    by_name = {plan.name: plan.steps for plan in found}
    assert found[0] == Plan("hold, touch nothing")
    assert Step(300.0, "admission", 63.0) in by_name["hold, admission"]  # 95 % of 4 over 6
    assert Step(0.0, "retry_budget", 0.0) in by_name["usual, breaker, no retries"]
    breakers = [s for s in by_name["usual, breaker"] if s.lever == "breaker"]
    assert breakers[0] == Step(0.0, "breaker", 120.0)  # three replicas of 32 and a quarter more
    assert breakers[1].value == 8 * 40
    assert not any(step.lever == "weight" for plan in found for step in plan.steps)


def test_a_faulty_endpoint_is_out_while_it_is_at_fault_and_replaced() -> None:
    grey = load_scenario("degraded-gpu")
    found = {plan.name: plan.steps for plan in plans(grey)}
    out = (Step(30.0, "weight", 0.0, "engine-2"), Step(75.0, "weight", 100.0, "engine-2"))
    assert found["hold"] == out
    assert found["hold, touch nothing"] == ()
    assert all(set(out) <= set(steps) for name, steps in found.items() if name != "hold, touch nothing")


@pytest.mark.parametrize("name", names())
def test_every_scenario_has_a_handful_of_different_plans_within_its_bounds(name: str) -> None:
    playing = load_scenario(name)
    found = plans(playing)
    assert 3 <= len(found) <= 16
    assert len({plan.steps for plan in found}) == len({plan.name for plan in found}) == len(found)
    for plan in found:
        assert [s.t for s in plan.steps] == sorted(s.t for s in plan.steps)
        for step in plan.steps:
            assert step.t >= 0
            if step.lever == "scale":
                assert step.value is not None
                assert playing.min_replicas <= step.value <= playing.max_replicas


def test_the_oracle_writes_each_step_when_it_is_due_and_needs_no_look() -> None:
    plan = Plan(
        "p",
        (
            Step(0.0, "scale", 6),
            Step(10.0, "weight", 0.0, "engine-1"),
            Step(10.0, "weight", 0.0, "engine-9"),  # not there: nothing to write
            Step(20.0, "breaker", 90.0),
            Step(30.0, "breaker", None),
        ),
    )
    bench = Bench(Oracle(plan))
    for now in range(0, 40, 3):
        bench.look(float(now), [])
    assert [(m.t, m.lever, m.target, m.after) for m in bench.log.moves] == [
        (0.0, "scale", "default", 6.0),
        (12.0, "weight", "engine-1", 0.0),
        (21.0, "breaker", "default", 90.0),
        (30.0, "breaker", "default", None),
    ]
    assert {(m.actor, m.reason) for m in bench.log.moves} == {("oracle", "plan p")}


@settings(max_examples=40, deadline=None)
@given(
    engines=st.integers(1, 12),
    load=st.floats(0.05, 1.5),
    factor=st.floats(0, 6),
    cold=st.floats(0, 300),
    utilisation=st.floats(0.3, 1.0),
)
def test_what_is_needed_serves_the_work_at_every_time(
    engines: int, load: float, factor: float, cold: float, utilisation: float
) -> None:
    playing = scenario(
        engines=engines,
        max_replicas=200,
        load=load,
        cold_start_s=cold,
        duration_s=600,
        timeline=[{"at_s": 200, "kind": "load", "factor": factor}, {"at_s": 400, "kind": "load"}],
    )
    schedule = needed(playing, utilisation)
    work = Work(playing)
    for t in range(0, 600, 10):
        asked_in_time = [n for start, n in schedule if start <= max(0.0, t - cold)][-1]
        if t < cold:
            continue
        serving = min(asked_in_time, [n for start, n in schedule if start <= t][-1])
        assert serving >= engines * work.at(float(t)) / utilisation - 1e-6
