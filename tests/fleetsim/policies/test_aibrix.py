import pytest

from fleetsim.policies.aibrix import Apa, Kpa, apa_replicas, cooled_down, kpa_replicas, panics, pending_guard
from tests.fleetsim.policies.looks import Bench, pod, ready


@pytest.mark.parametrize(
    ("total", "current", "expected"),
    [
        (20.0, 2, 2),
        (30.0, 2, 3),
        (100.0, 2, 4),  # at most double
        (5.0, 4, 2),  # at least half
        (43.0, 4, 4),  # within 10 %
        (45.0, 4, 5),
        (0.0, 1, 0),
    ],
)
def test_kpa_divides_the_total_by_the_target(total: float, current: int, expected: int) -> None:
    assert kpa_replicas(total, current, target=10.0) == expected


def test_kpa_panics_when_the_short_window_is_over_twice_the_long_one_and_when_all_is_idle() -> None:
    assert not panics(0.2, 0.4)
    assert panics(0.2, 0.41)
    assert panics(0.0, 0.0)


@pytest.mark.parametrize(
    ("use", "current", "expected"),
    [(90.0, 4, 8), (70.0, 1, 2), (54.0, 4, 4), (46.0, 4, 4), (10.0, 4, 2), (30.0, 4, 3)],
)
def test_apa_scales_by_the_ratio_of_use_to_target(use: float, current: int, expected: int) -> None:
    assert apa_replicas(use, current, target=50.0) == expected


def test_pending_replicas_count_as_empty_upwards_and_as_on_target_downwards() -> None:
    # The examples of AIBrix's own tests: use 90 with 2 of 4 ready, and 10.
    assert pending_guard(8, 4, 2, 90.0, target=50.0) == 4
    assert pending_guard(2, 4, 2, 10.0, target=50.0) == 3
    assert pending_guard(8, 4, 4, 90.0, target=50.0) == 8


def test_the_cool_down_deepens_a_scale_down_as_the_code_has_it() -> None:
    # One low reading four minutes ago: an HPA would still hold 8, this goes to 3.
    assert cooled_down([(0.0, 3), (120.0, 8), (240.0, 7)], 240.0, 8) == 3
    assert cooled_down([(0.0, 3), (300.0, 8), (305.0, 7)], 305.0, 8) == 7
    assert cooled_down([(0.0, 12), (240.0, 9)], 240.0, 8) == 9


def test_apa_acts_on_the_mean_of_three_minutes() -> None:
    bench = Bench(Apa("aibrix-apa"))
    assert [bench.uniform(10.0 * i, kv_usage=0.5) for i in range(18)] == [4] * 18
    # The mean falls by 1/36 with each look; 4 x mean / 0.5 reaches 3 with the ninth (0.25), not with one blip.
    assert [bench.uniform(180.0 + 10.0 * i, kv_usage=0.0) for i in range(5)] == [4, 4, 4, 4, 3]


def test_kpa_takes_the_short_window_in_panic_and_gives_nothing_back_meanwhile() -> None:
    bench = Bench(Kpa("aibrix-kpa"))
    # A tenth of four caches is less than half of one: halved twice.
    assert [bench.uniform(10.0 * i, kv_usage=0.1) for i in range(18)] == [2] + [1] * 17
    # 0.9 in two of the last six looks is 0.37 on average, over twice the 0.19 of three minutes: panic, holding 1 ...
    assert [bench.uniform(180.0 + 10.0 * i, kv_usage=0.9) for i in range(2)] == [1, 1]
    # ... and 2 as soon as the minute's mean asks for it.
    looks = [bench.uniform(200.0 + 10.0 * i, kv_usage=0.9) for i in range(4)]
    assert looks[-1] > 1 and looks == sorted(looks)
    assert bench.log.moves[-1].reason.startswith("panic")


def test_idle_for_the_whole_window_means_panic_and_nothing_is_given_back() -> None:
    bench = Bench(Kpa("aibrix-kpa"))
    assert [bench.uniform(10.0 * i, kv_usage=0.0) for i in range(60)] == [4] * 60


def test_pods_that_do_not_answer_are_left_out_and_without_any_nothing_happens() -> None:
    bench = Bench(Apa("aibrix-apa"))
    assert bench.look(0.0, [pod(i, "ready") for i in range(4)]) == 4
    # Half of them full, half silent: the mean is that of those that answer.
    assert bench.look(10.0, [*ready(10.0, 2, kv_usage=1.0), pod(2, "ready"), pod(3, "ready")]) == 8
