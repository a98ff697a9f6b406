import pytest

from fleetsim.policies.hpa import external_replicas, on_kv, on_queue, pods_replicas, within
from fleetsim.virtual.observation import EngineSeen
from tests.fleetsim.policies.looks import Bench, pod, ready


@pytest.mark.parametrize(
    ("values", "missing", "unready", "current", "expected"),
    [
        ([10.0] * 4, 0, 0, 4, 8),  # the ratio is 2
        ([5.4] * 4, 0, 0, 4, 4),  # within 10 %
        ([5.5] * 4, 0, 0, 4, 4),  # at 10 %
        ([5.6] * 4, 0, 0, 4, 5),
        ([0.0] * 4, 0, 0, 4, 0),
        ([2.0] * 4, 0, 0, 4, 2),
        # Missing pods count as 0 upwards: 40 over 6 x 5.
        ([10.0] * 4, 2, 0, 6, 8),
        # ... as on target downwards: (4 x 2 + 2 x 5) over 6 x 5 = 0.6 of 6.
        ([2.0] * 4, 2, 0, 6, 4),
        # Ready ones at 6.2 would be 1.24; with two empty ones it is 0.83 and turns the direction: no change.
        ([6.2] * 4, 2, 0, 6, 6),
        # Pods not scheduled yet count as 0 upwards only.
        ([10.0] * 4, 0, 4, 8, 8),
        ([15.0] * 4, 0, 4, 8, 12),
        ([2.0] * 4, 0, 4, 8, 2),
        # 60 over 7 x 5 would be 12, which is fewer than the 14 that are asked for: not on the way up.
        ([15.0] * 4, 3, 0, 14, 14),
        ([], 4, 0, 4, None),
    ],
)
def test_replicas_by_a_metric_of_the_pods(
    values: list[float], missing: int, unready: int, current: int, expected: int | None
) -> None:
    assert pods_replicas(values, missing, unready, current, 5.0) == expected


def test_an_external_metric_is_divided_by_its_target_outside_the_tolerance() -> None:
    assert external_replicas(23.0, 4, 5.0) == 5
    assert external_replicas(21.0, 4, 5.0) == 4
    assert external_replicas(0.0, 4, 5.0) == 0
    assert external_replicas(3.0, 0, 5.0) == 1


def test_tolerance_includes_its_ends() -> None:
    assert [within(r) for r in (0.89, 0.9, 1.0, 1.1, 1.11)] == [False, True, True, True, False]


def test_on_queue_scales_up_at_once_and_down_after_five_minutes() -> None:
    bench = Bench(on_queue())
    assert bench.uniform(0.0, waiting=10.0) == 8
    assert bench.uniform(15.0, waiting=0.0) == 8
    assert bench.uniform(285.0, waiting=0.0) == 8
    assert bench.uniform(300.0, waiting=0.0) == 1
    assert bench.log.moves[0].reason == "waiting requests 10.00 a pod, target 5: 8"
    assert {m.actor for m in bench.log.moves} == {"hpa-queue"}


def test_a_pod_that_warms_up_dampens_the_next_step() -> None:
    bench = Bench(on_queue(), replicas=8)
    pods = [*ready(0.0, 4, waiting=10.0), *(pod(i, "warming") for i in range(4, 8))]
    assert bench.look(0.0, pods) == 8


def test_without_a_single_metric_it_does_nothing_and_what_drains_is_not_counted() -> None:
    bench = Bench(on_kv())
    assert bench.uniform(0.0, kv_usage=None) == 4
    assert bench.look(15.0, [pod(i, "ready") for i in range(4)]) == 4
    old = [pod(i, "ready", EngineSeen(0.0, kv_usage=1.0)) for i in range(4)]
    assert bench.look(60.0, old) == 4  # scraped a minute ago: stale
    draining = [pod(i, "draining", EngineSeen(75.0, kv_usage=0.0)) for i in range(4, 8)]
    assert bench.look(75.0, [*ready(75.0, 4, kv_usage=0.9), *draining]) == 6
