import pytest

from fleetsim.policies.registry import build
from fleetsim.policies.wva import ReplicaMetrics, Wva
from fleetsim.policies.wva_v1 import SaturationV1, spare
from fleetsim.policies.wva_v2 import SaturationV2, derived_bound, median, output_bucket, replicas_for
from tests.fleetsim.policies.looks import Bench, pod, ready, scenario


def of(*pairs: tuple[float, float]) -> list[ReplicaMetrics]:
    return [ReplicaMetrics(kv, queue) for kv, queue in pairs]


def test_v1_averages_the_spare_of_replicas_that_are_not_saturated() -> None:
    found = spare(of((0.60, 1.0), (0.70, 3.0), (0.85, 0.0), (0.10, 5.0)))
    assert found.healthy == 2
    assert found.kv == pytest.approx(0.15)
    assert found.queue == pytest.approx(3.0)
    assert not found.scarce


@pytest.mark.parametrize(
    ("metrics", "target"),
    [
        (of((0.71, 0.0), (0.71, 0.0)), 3),  # spare KV 0.09 < 0.10
        (of((0.10, 2.5), (0.10, 2.0)), 3),  # spare queue 2.75 < 3
        (of((0.90, 0.0), (0.90, 9.0)), 3),  # none unsaturated
        (of((0.35, 0.0), (0.35, 0.0)), 1),  # 0.7 on one leaves exactly 0.10
        (of((0.36, 0.0), (0.36, 0.0)), 2),
        (of((0.10, 1.1), (0.10, 1.1)), 2),  # a queue of 2.2 on one leaves less than 3
        (of((0.50, 0.0)), 1),  # the last one stays
    ],
)
def test_v1_adds_one_where_spare_is_scarce_and_takes_one_where_it_is_safe(
    metrics: list[ReplicaMetrics], target: int
) -> None:
    assert SaturationV1().target(metrics, len(metrics), len(metrics))[0] == target


def test_v1_counts_from_the_replicas_that_report_and_adds_none_while_one_is_pending() -> None:
    busy = of((0.9, 9.0), (0.9, 9.0), (0.9, 9.0))
    assert SaturationV1().target(busy, 4, 3)[0] == 3
    assert SaturationV1().target(busy, 4, 4)[0] == 4  # one of the ready ones is silent


def test_v2_bounds_capacity_by_memory_what_a_full_queue_shows_or_the_steady_batch() -> None:
    analyzer = SaturationV2(batched_tokens=2048, max_num_seqs=32)
    idle = ReplicaMetrics(0.1, 0.0, 10_000, 500.0, 150.0)
    assert analyzer.capacity(idle) == 8_000  # 32 x 575 tokens would not fit: 80 % of the cache
    roomy = ReplicaMetrics(0.01, 0.0, 400_000, 500.0, 150.0)
    assert derived_bound(2048, 32, 500.0, 150.0) == 32 * 575
    assert analyzer.capacity(roomy) == 32 * 575
    assert analyzer.capacity(ReplicaMetrics(0.05, 5.0, 400_000, 500.0, 150.0)) == 20_000  # seen: 20 000 in use
    assert analyzer.capacity(ReplicaMetrics(0.04, 9.0, 400_000, 500.0, 150.0)) == 16_000
    assert analyzer.capacity(roomy) == 18_000  # remembered, the mean of both
    long = ReplicaMetrics(0.01, 0.0, 400_000, 500.0, 700.0)
    assert analyzer.capacity(long) == 32 * 850  # of another class of output length nothing is remembered


def test_v2_output_classes_median_and_unknown_lengths() -> None:
    assert [output_bucket(v) for v in (99.0, 100.0, 499.0, 500.0)] == ["short", "medium", "medium", "long"]
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([1.0, 4.0, 2.0, 3.0]) == 2.0  # whole tokens
    assert derived_bound(2048, 32, 500.0, 0.0) is None
    assert SaturationV2(2048, 32).capacity(ReplicaMetrics(0.1, 0.0, 10_000)) == 8_000


@pytest.mark.parametrize(
    ("demand", "current", "ready_ones", "expected"),
    [
        (3400.0, 4, 4, 4),  # exactly 85 % of 4000
        (3500.0, 4, 4, 5),
        (8500.0, 4, 4, 10),
        (8500.0, 10, 4, 10),  # what comes is counted
        (2800.0, 4, 4, 4),  # exactly 70 %
        (2090.0, 4, 4, 3),
        (0.0, 4, 4, 1),
    ],
)
def test_v2_requires_at_85_percent_and_spares_at_70(
    demand: float, current: int, ready_ones: int, expected: int
) -> None:
    assert replicas_for(demand, 1000.0, current, ready_ones) == expected


def test_v2_demand_counts_the_queue_by_the_mean_prompt() -> None:
    analyzer = SaturationV2(2048, 32)
    # 2 replicas of 8000 tokens: 2000 in use and 20 waiting of 500 each on both, 24 000 over 0.85.
    metrics = [ReplicaMetrics(0.2, 4.0, 10_000, 2500.0, 150.0)] * 2
    assert analyzer.target(metrics, 2, 2)[0] == 4
    assert analyzer.target([ReplicaMetrics(0.2, 4.0)] * 2, 2, 2)[0] == 2  # the size of the cache is not known


def test_the_shipped_hpa_takes_four_minutes_for_each_step() -> None:
    bench = Bench(build("wva-v1", scenario()))
    looks = [bench.uniform(15.0 * i, kv_usage=0.75, waiting=0.0) for i in range(17)]
    assert looks == [4] * 16 + [5]
    assert [bench.uniform(255.0 + 15.0 * i, kv_usage=0.75, waiting=0.0) for i in range(3)] == [5, 5, 5]
    assert all(m.actor == "wva-v1" for m in bench.log.moves)


def test_a_missing_kv_metric_reads_as_an_empty_cache() -> None:
    bench = Bench(build("wva-v1", scenario()))
    looks = [bench.uniform(15.0 * i, kv_usage=None, waiting=0.0) for i in range(17)]
    assert looks[-1] == 3  # a full fleet would look just like this


def test_without_metrics_what_was_published_stays() -> None:
    policy = build("wva-v2", scenario())
    assert isinstance(policy, Wva)
    bench = Bench(policy)
    assert [bench.look(15.0 * i, [pod(k, "ready") for k in range(4)]) for i in range(40)] == [4] * 40


def test_v2_learns_lengths_from_counters_and_sizes_for_the_queue() -> None:
    bench = Bench(build("wva-v2", scenario()), replicas=2)
    for i in range(40):
        done = 10.0 * i
        bench.look(
            15.0 * i,
            ready(
                15.0 * i,
                bench.pool.wanted,
                kv_usage=0.05,
                waiting=40.0,
                kv_tokens=400_000.0,
                requests_finished=done,
                request_prompt_sum=500.0 * done,
                request_generation_sum=150.0 * done,
            ),
        )
    # At first no lengths are known: 40 000 tokens in use. Then 3 x (20 000 and 40 x 500 queued) over 0.85 x 20 000.
    assert [move.after for move in bench.log.moves] == [3, 8]
