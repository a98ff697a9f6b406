from dataclasses import replace

import pytest

from fleetsim.policies.dynamo import Dynamo, combined, decode_side, prefill_side, side
from fleetsim.policies.dynamo_model import AggregatedModel
from fleetsim.policies.dynamo_passes import Load, benchmark, mean_pass
from fleetsim.virtual.observation import EngineSeen, GatewaySeen
from tests.fleetsim.policies.looks import Bench, pod, ready, scenario
from tests.fleetsim.policies.test_dynamo_model import GRID, LIMITS


def model(prompt: float = 500.0) -> AggregatedModel:
    found = AggregatedModel(LIMITS, GRID)
    found.prompt_tokens.add(prompt)
    return found


def gateway(now: float, requests: float) -> GatewaySeen:
    return GatewaySeen(now, requests, requests, 0, requests, 0, 0, 0, 0, 0)


def test_one_hot_worker_is_not_enough_to_scale_up() -> None:
    assert side([0.6, 0.4], 0.5, 2, False).replicas == 2
    assert side([0.6, 0.7], 0.5, 2, False).replicas == 3
    assert side([0.1, 0.1], 0.5, 2, True).replicas == 1
    assert side([0.1, 0.1], 0.5, 2, None).replicas is None
    assert side([0.1], 0.5, 1, True).replicas is None
    assert side([None], 0.5, 1, None).replicas is None


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [(5, 4, 5), (4, 5, 5), (3, 3, 3), (3, 4, 4), (4, 3, 4), (None, 3, 3), (3, None, 4), (None, None, 4), (5, 3, 5)],
)
def test_up_on_either_side_and_down_on_both(prefill: int | None, decode: int | None, expected: int) -> None:
    assert combined(prefill, decode, 4) == expected


def test_a_queue_that_one_worker_fewer_could_not_work_off_in_time_is_refused() -> None:
    # 4 waiting of 500 tokens on each of two: 0.135 s alone, 0.24 s and a step more with all of them on one.
    loads = [Load(8.0, 4.0, 4000.0)] * 2
    assert prefill_side(model(), loads, ttft_s=1.0, hit_rate=0.0).replicas == 1
    refused = prefill_side(model(), loads, ttft_s=0.25, hit_rate=0.0)
    assert refused.refused and refused.replicas == 2
    # The request's own prefill takes 0.035 s: a target of 0.03 s leaves no budget, all are over it.
    assert prefill_side(model(), loads, ttft_s=0.03, hit_rate=0.0).replicas == 3


def test_consolidation_is_refused_where_the_kv_cache_or_the_itl_would_not_hold() -> None:
    half_full = [Load(16.0, 0.0, 210_000.0)] * 2  # 420 000 tokens on one
    assert decode_side(model(), half_full, itl_s=10.0).refused
    calm = [Load(16.0, 0.0, 20_000.0)] * 2  # 10 ms and 4 ms with 40 000 tokens on one
    assert decode_side(model(), calm, itl_s=0.020).replicas == 1
    assert decode_side(model(), calm, itl_s=0.017).refused  # over 80 % of it
    assert decode_side(model(), calm, itl_s=0.011).replicas == 3


def test_a_pass_is_the_mean_of_those_between_two_scrapes() -> None:
    before = EngineSeen(0.0, 0, 10, 0.1, 1000, 0, 1000, 0, itl_sum=10.0, itl_count=500)
    after = EngineSeen(5.0, 0, 10, 0.2, 1000, 0, 3000, 500, itl_sum=14.0, itl_count=700)
    found = mean_pass(before, after, LIMITS, 500.0)
    assert found is not None
    assert found.wall_s == pytest.approx(0.02)
    assert found.decode_kv == pytest.approx(200.0)
    assert found.prefill_tokens == pytest.approx(1500 / 20)  # 200 latencies of 10 sequences are 20 passes
    assert mean_pass(None, after, LIMITS, 500.0) is None
    assert mean_pass(after, after, LIMITS, 500.0) is None


def test_while_requests_wait_and_seats_are_free_every_pass_is_full() -> None:
    before = EngineSeen(0.0, 7, 10, 0.1, 1000, 0, 1000, 0, itl_sum=10.0, itl_count=500)
    after = EngineSeen(5.0, 9, 16, 0.2, 1000, 0, 1000, 0, itl_sum=14.0, itl_count=700)
    found = mean_pass(before, after, LIMITS, 500.0)
    assert found is not None and found.prefill_tokens == 2048 - 13  # though no prompt was counted
    calm = replace(after, waiting=0.0)
    assert mean_pass(before, calm, LIMITS, 500.0) is None  # full for an unknown part of the time
    assert mean_pass(before, replace(after, running=24.0), LIMITS, 500.0) is None
    assert mean_pass(before, after, LIMITS, 100.0) != found  # 900 tokens wait: less than a pass takes
    found = mean_pass(replace(before, running=32.0), replace(after, running=32.0), LIMITS, 500.0)
    assert found is not None and found.prefill_tokens == 0.0  # they wait for a place, not for the budget


def test_the_sweep_before_deployment_predicts_the_healthy_engine() -> None:
    playing = scenario()
    found = AggregatedModel(LIMITS, benchmark(playing)).wall_s(0.0, 32 * 575.0)
    assert found == pytest.approx(0.021, rel=0.35)  # a full batch's step, with a line through a curve


def test_the_throughput_loop_sets_a_floor_and_a_failed_read_takes_it_away() -> None:
    policy = Dynamo(scenario())
    bench = Bench(policy, replicas=2)

    def look(now: float, requests: float | None) -> int:
        engine = {
            "running": 4.0,
            "waiting": 0.0,
            "kv_usage": 0.01,
            "kv_tokens": 400_000.0,
            "requests_finished": now * 10,
            "request_prompt_sum": now * 5000,
            "request_generation_sum": now * 1500,
        }
        seen = gateway(now, requests) if requests is not None else None
        return bench.look(now, ready(now, bench.pool.wanted, **engine), seen)

    look(0.0, 0.0)
    assert policy.lower_bound == 2  # what it finds
    look(180.0, 180 * 30.0)
    assert policy.lower_bound == 4  # 30 requests/s, of which one of the four that serve 35 does 8.7
    assert bench.pool.wanted == 4
    look(360.0, None)
    assert policy.lower_bound == 1


def test_it_only_observes_while_a_replica_is_not_ready_or_does_not_publish() -> None:
    policy = Dynamo(scenario())
    bench = Bench(policy)
    idle = {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0, "kv_tokens": 400_000.0}
    for i in range(20):
        assert bench.look(5.0 * i, [*ready(5.0 * i, 3, **idle), pod(3, "pending")]) == 4
    silent = EngineSeen(100.0, running=0.0, waiting=0.0, kv_usage=None, kv_tokens=400_000.0)
    assert bench.look(100.0, [*ready(100.0, 3, **idle), pod(3, "ready", silent)]) == 4
    assert bench.look(105.0, ready(105.0, 4, **idle)) == 4  # the bound it began with
    policy.lower_bound = 1
    assert bench.look(110.0, ready(110.0, 4, **idle)) == 3
    assert bench.look(115.0, [*ready(115.0, 3, **idle), pod(3, "draining")]) == 3
