"""The whole fleet together: the same seed plays the same, nothing is lost, the timeline happens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fleetsim.scenario import Scenario
from fleetsim.settings import Traffic
from fleetsim.truth import Truth
from fleetsim.virtual.play import play
from fleetsim.virtual.result import Run
from fleetsim.virtual.sizing import fleet_capacity_rps
from fleetsim.virtual.world import World

SECONDS = 60.0
OUTCOMES = {"ok", "timeout", "rejected", "error", "abandoned", "unfinished"}


def scenario(**changes: Any) -> Scenario:
    basic: dict[str, Any] = {
        "name": "t",
        "about": "t",
        "truth": Truth(what="t"),
        "engines": 2,
        "max_replicas": 4,
        "cold_start_s": 5.0,
        "duration_s": SECONDS,
        "hardware": {"jitter": 0.05},
    }
    return Scenario.model_validate(basic | changes)


TROUBLE = scenario(
    cluster={"restart_s": 2.0},
    timeline=[
        {"at_s": 10, "kind": "slow", "targets": "all", "g": 3.0},
        {"at_s": 20, "kind": "crash", "targets": ["engine-1"], "xid": 79},
        {"at_s": 25, "kind": "recover", "targets": "all"},
    ],
)


def fates(run: Run) -> list[tuple[float, str, float | None, float | None]]:
    return [(call.t, call.outcome, call.ended_at, call.ttft_s) for call in run.calls]


@pytest.mark.parametrize("policy", ["none", "hpa-queue", "envoy-defaults"])
def test_the_same_seed_plays_the_same_and_another_one_does_not(policy: str) -> None:
    first, again, other = play(TROUBLE, policy), play(TROUBLE, policy), play(TROUBLE, policy, seed=2)
    assert fates(first) == fates(again)
    assert first.moves == again.moves and first.timeline == again.timeline
    assert fates(first) != fates(other)


def test_every_call_ends_once_or_is_cut_off_by_the_end() -> None:
    run = play(TROUBLE, "none")
    assert {call.outcome for call in run.calls} <= OUTCOMES
    for call in run.calls:
        assert (call.ended_at is None) == (call.outcome == "unfinished")
        assert call.ended_at is None or call.t <= call.ended_at <= SECONDS
        assert 1 <= call.attempts <= 3
    assert len(run.calls) == pytest.approx(run.offered_rps * SECONDS, rel=0.2)
    assert sum(call.output_tokens for call in run.calls if call.outcome == "ok") <= run.generated_tokens


def test_the_timeline_happens_and_is_told() -> None:
    run = play(TROUBLE, "none")
    told = [(entry.t, entry.state, entry.target) for entry in run.timeline if entry.kind == "fault"]
    assert told == [
        (10.0, "slow", "engine-0,engine-1"),
        (20.0, "crash", "engine-1"),
        (25.0, "recover", "engine-0,engine-1"),
    ]
    assert Counter(call.outcome for call in run.calls)["ok"] < len(run.calls)


def test_what_is_paid_is_what_was_held() -> None:
    run = play(TROUBLE, "none")
    assert sum(a.end - a.start for a in run.allocations) == pytest.approx(2 * SECONDS)
    assert sum(a.cost_usd for a in run.allocations) == pytest.approx(2 * SECONDS * 4 * 2.95 / 3600)


def test_others_who_move_are_told_apart_from_the_policy() -> None:
    fought = scenario(
        load=1.5,
        other_writer={"policy": "hpa-queue", "from_s": 5.0},
        timeline=[{"at_s": 30, "kind": "gateway", "admission": 50, "breaker": 40}],
    )
    moves = play(fought, "hpa-queue").moves
    actors = Counter(move.actor for move in moves)
    assert {"hpa-queue", "other hpa-queue", "operator"} >= set(actors) and actors["operator"] == 2
    assert {(m.lever, m.after) for m in moves if m.actor == "operator"} == {("admission", 50.0), ("breaker", 40.0)}


def test_a_slower_model_serves_less_and_is_offered_less() -> None:
    plain, slow = World(scenario()), World(scenario(), g=1.25)
    assert slow.capacity_rps == pytest.approx(plain.capacity_rps / 1.25, rel=0.02)
    run = play(scenario(), "none", g=1.25)
    assert run.offered_rps == pytest.approx(0.8 * slow.capacity_rps)


def test_capacity_with_a_trace_is_that_of_its_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{t},1000,50\n" for t in range(100))
    trace.write_text("t_s,prompt_tokens,output_tokens\n" + rows)
    fixed = scenario(workload={"prompt_tokens": [1000, 1000], "output_tokens": [50, 50]})
    replayed = scenario().model_copy(update={"traffic": Traffic(trace=trace)})
    assert fleet_capacity_rps(replayed) == pytest.approx(fleet_capacity_rps(fixed), rel=1e-6)
    assert fleet_capacity_rps(replayed) != pytest.approx(fleet_capacity_rps(scenario()), rel=0.1)


def test_a_disaggregated_fleet_is_as_wide_as_its_narrower_half() -> None:
    both = {"prompt_tokens": [2000, 2000], "output_tokens": [100, 100]}
    one, two = (fleet_capacity_rps(scenario(prefill_engines=n, workload=both)) for n in (1, 2))
    assert two == pytest.approx(2 * one, rel=0.02), "prefill is what it lacks"


def test_nothing_is_read_of_devices_before_somebody_asks() -> None:
    world = World(scenario())
    world.run_until(5.0)
    assert "DCGM_FI_DEV_GPU_UTIL{" in world.telemetry.body("dcgm", 5.0)
    assert world.observe().ready and world.observe().gateway is not None
