from collections.abc import Sequence
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.scenario import Scenario, parse_scenario
from fleetsim.score import Score, patience, quantile, reversals, score, within
from fleetsim.settings import Slo
from fleetsim.virtual.moves import Moved
from fleetsim.virtual.record import CallRecord, TaskRecord
from fleetsim.virtual.result import Allocation, Run

SCENARIO = {
    "name": "a-scenario",
    "about": "for tests",
    "truth": {
        "what": "one engine slow",
        "right": [{"lever": "weight", "direction": "down", "targets": ["engine-0"]}, {"lever": "scale"}],
        "wrong": [{"lever": "weight", "direction": "down", "targets": ["engine-1"], "from_s": 50}],
    },
    "trigger": {"start_s": 30, "end_s": 75},
    "clients": {"timeout_s": 10, "retries": 2},
    "slo": {"ttft_s": 2, "tpot_s": 0.2},
}


def scenario(**changes: object) -> Scenario:
    return parse_scenario({**SCENARIO, **changes}, "test")


def call(t: float, outcome: str = "ok", ttft_s: float | None = 0.5, tpot_s: float | None = 0.05) -> CallRecord:
    if outcome != "ok":
        ttft_s = tpot_s = None
    return CallRecord(t, "default", 0, 500, 100, outcome, attempts=1, ttft_s=ttft_s, tpot_s=tpot_s)


def run(
    calls: Sequence[CallRecord] = (),
    *,
    played: Scenario | None = None,
    policy: str = "mine",
    tasks: Sequence[TaskRecord] = (),
    allocations: Sequence[Allocation] = (),
    moves: Sequence[Moved] = (),
    generated_tokens: int = 0,
) -> Run:
    return Run(
        scenario=played or scenario(),
        policy=policy,
        seed=1,
        load=0.8,
        duration_s=180.0,
        capacity_rps=2.0,
        offered_rps=1.6,
        calls=tuple(calls),
        tasks=tuple(tasks),
        allocations=tuple(allocations),
        moves=tuple(moves),
        timeline=(),
        generated_tokens=generated_tokens,
    )


def moved(
    t: float, before: float | None, after: float | None, lever: str = "scale", target: str = "default", by: str = "mine"
) -> Moved:
    return Moved(t, by, lever, target, before, after)


def test_objective_asks_for_answer_first_token_and_pace() -> None:
    slo = Slo(ttft_s=2.0, tpot_s=0.2)
    assert within(call(0, ttft_s=2.0, tpot_s=0.2), slo)
    assert within(call(0, tpot_s=None), slo)  # one token
    assert not within(call(0, ttft_s=2.01), slo)
    assert not within(call(0, tpot_s=0.21), slo)
    late = call(0)
    late.outcome = "timeout"  # its first token came, its client left in the middle
    assert not within(late, slo)


def test_success_per_dollar_counts_every_allocated_second() -> None:
    found = score(
        run(
            [call(t) for t in range(100)] + [call(100, ttft_s=3.0), call(101, "rejected")],
            allocations=[Allocation("engine-0", 4, 2.5, 0.0, 180.0), Allocation("engine-1", 4, 2.5, 90.0, 180.0)],
        )
    )
    assert found.gpu_hours == pytest.approx((180 + 90) * 4 / 3600)
    assert found.cost_usd == pytest.approx((180 + 90) * 10 / 3600)
    assert (found.offered, found.answered, found.slo_met) == (102, 101, 100)
    assert found.success_per_dollar == pytest.approx(100 / 0.75)
    assert found.slo_attainment == pytest.approx(100 / 102)


def test_attainment_leaves_out_what_nobody_knows_yet() -> None:
    found = score(run([call(1.0), call(2.0, "timeout"), call(3.0, "abandoned"), call(179.0, "unfinished")]))
    assert (found.offered, found.answered, found.unfinished) == (4, 1, 1)
    assert found.slo_attainment == pytest.approx(1 / 3)


def test_goodput_cohorts_are_those_of_the_demo() -> None:
    # one call a second; during the trigger each third is lost, in the last 31.5 s (a patience) all are unfinished
    calls = [
        call(t + 0.5, "unfinished" if t >= 150 else "timeout" if 30 <= t < 75 and t % 3 == 0 else "ok")
        for t in range(180)
    ]
    found = score(run(calls[::-1]))
    assert patience(scenario()) == 31.5
    assert found.goodput_ratio_before_trigger == 1.0
    assert found.goodput_ratio_during_fault == pytest.approx(2 / 3)
    assert found.goodput_ratio_after_trigger == 1.0
    assert found.recovery_s == 0.0


def test_late_answers_are_good_but_not_within_the_objective() -> None:
    found = score(run([call(float(t), ttft_s=8.0) for t in range(180)]))
    assert found.goodput_ratio_before_trigger == 1.0
    assert found.slo_attainment == 0.0


def test_patience_covers_the_application_s_retries() -> None:
    nested = scenario(clients={"timeout_s": 10, "retries": 2, "app_retries": 3})
    assert patience(nested) == 4 * 31.5


def test_quantiles_are_nearest_rank_of_answered_calls() -> None:
    calls = [call(t, ttft_s=t / 100, tpot_s=t / 1000) for t in range(1, 101)] + [call(200, "timeout")]
    found = score(run(calls))
    assert (found.ttft_p50_s, found.ttft_p95_s, found.itl_p95_s) == (0.5, 0.95, 0.095)
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0


def test_tasks_retries_and_waste() -> None:
    retried = call(1.0)
    retried.attempts = 3
    tasks = [TaskRecord(0.0, 0, 4, True), TaskRecord(0.0, 1, 2, False), TaskRecord(170.0, 2, 1, None)]
    found = score(run([retried, call(2.0, "timeout")], tasks=tasks, generated_tokens=250))
    assert found.tasks_succeeded == 0.5
    assert found.attempts_per_call == 2.0
    assert found.wasted_tokens == pytest.approx(0.6)  # 100 of 250 were in an answer


def test_moves_are_judged_by_the_truth() -> None:
    moves = [
        moved(40, 100, 0, "weight", "engine-1"),  # before it is wrong
        moved(60, 100, 50, "weight", "engine-1"),  # wrong
        moved(60, 50, 100, "weight", "engine-1"),  # giving back is not
        moved(61, 100, 0, "weight", "engine-1", by="envoy"),  # the policy's gateway ejects it: wrong
        moved(62, 100, 0, "weight", "engine-1", by="hpa-queue"),  # another writer of the scenario
        moved(63, 100, 10, "weight", "engine-0"),  # right
        moved(64, 10, 0, "weight", "engine-0"),  # the same kind again
    ]
    found = score(run(moves=moves))
    assert found.actions == 6
    assert found.wrong_actions == 2
    assert (found.right_done, found.right_asked) == (1, 2)


def test_reversal_is_the_way_back_within_five_minutes() -> None:
    assert reversals([moved(0, 4, 6), moved(100, 6, 8), moved(200, 8, 7)]) == 1
    assert reversals([moved(0, 4, 6), moved(300, 6, 5)]) == 1
    assert reversals([moved(0, 4, 6), moved(301, 6, 5)]) == 0
    assert reversals([moved(0, 4, 6), moved(10, 6, 4), moved(20, 4, 6)]) == 2
    one, other = (moved(t, *values, "weight", name) for t, values, name in ((0, (100, 0), "a"), (9, (0, 100), "b")))
    assert reversals([one, other]) == 0
    # a limit that was set and lifted
    assert reversals([moved(0, None, 64, "breaker"), moved(30, 64, None, "breaker")]) == 1


def test_nothing_is_not_zero() -> None:
    found = score(run())
    empty = {f.name for f in fields(Score) if getattr(found, f.name) is None}
    assert empty == {
        "slo_attainment",
        "success_per_dollar",
        "goodput_ratio_before_trigger",
        "goodput_ratio_during_fault",
        "goodput_ratio_after_trigger",
        "recovery_s",
        "ttft_p50_s",
        "ttft_p95_s",
        "itl_p95_s",
        "tasks_succeeded",
        "attempts_per_call",
        "wasted_tokens",
    }


calls_drawn = st.builds(
    call,
    t=st.floats(0, 180),
    outcome=st.sampled_from(["ok", "timeout", "rejected", "error", "abandoned", "unfinished"]),
    ttft_s=st.floats(0, 10),
    tpot_s=st.none() | st.floats(0, 1),
)


@given(st.lists(calls_drawn, max_size=60))
@settings(deadline=None, max_examples=60)
def test_counts_nest_and_ratios_are_shares(calls: list[CallRecord]) -> None:
    found = score(run(calls))
    assert 0 <= found.slo_met <= found.answered <= found.offered == len(calls)
    assert found.answered + found.unfinished <= found.offered
    for name in ("slo_attainment", "goodput_ratio_before_trigger", "goodput_ratio_after_trigger"):
        value = getattr(found, name)
        assert value is None or 0 <= value <= 1
    assert found == score(run(list(reversed(calls))))  # whatever order the records are in
