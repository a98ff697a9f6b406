import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.policies.behaviour import DEFAULT_DOWN, DEFAULT_UP, Behaviour, Limit, Rules, at_least, at_most, stabilised


def test_upwards_the_lowest_of_the_window_counts_and_downwards_the_highest() -> None:
    history = [(0.0, 9), (50.0, 6), (100.0, 7)]
    assert stabilised(history, 120.0, 5, 8, up_s=100.0, down_s=300.0) == 6
    assert stabilised(history, 120.0, 5, 8, up_s=0.0, down_s=300.0) == 8
    assert stabilised(history, 120.0, 10, 2, up_s=0.0, down_s=300.0) == 9
    assert stabilised(history, 120.0, 10, 2, up_s=0.0, down_s=100.0) == 7
    assert stabilised(history, 120.0, 10, 2, up_s=0.0, down_s=0.0) == 2
    # Higher than now, yet not to be exceeded: a window that holds a low recommendation leaves the count alone.
    assert stabilised([(110.0, 3)], 120.0, 5, 8, up_s=60.0, down_s=300.0) == 5


@pytest.mark.parametrize(
    ("current", "changes", "most", "fewest"),
    [
        (2, [], 6, 0),  # 4 pods are more than 100 %
        (10, [], 20, 0),
        (10, [(95.0, 5)], 10, 0),  # began at 5: doubled already
        (10, [(80.0, 5)], 20, 0),  # more than 15 s ago
        (10, [(95.0, -5)], 30, 0),  # began at 15
    ],
)
def test_limits_reckon_from_the_start_of_the_period(
    current: int, changes: list[tuple[float, int]], most: int, fewest: int
) -> None:
    assert at_most(current, changes, 100.0, DEFAULT_UP.limits) == most
    assert at_least(current, changes, 100.0, DEFAULT_DOWN.limits) == fewest


def test_the_limit_that_allows_most_counts() -> None:
    limits = (Limit("pods", 1, 60.0), Limit("percent", 50, 60.0))
    assert at_most(3, [], 0.0, limits) == 5  # 3 * 1.5 rounded up
    assert at_most(1, [], 0.0, limits) == 2
    assert at_least(3, [], 0.0, limits) == 1
    assert at_least(8, [(0.0, -2)], 0.0, limits) == 5  # began at 10, half of that


def test_a_scale_down_waits_out_its_window_even_at_first() -> None:
    behaviour = Behaviour()
    assert [behaviour.settle(15.0 * i, 8, 2, 1, 10) for i in range(20)] == [8] * 20
    assert behaviour.settle(300.0, 8, 2, 1, 10) == 2


def test_after_a_gap_longer_than_the_window_nothing_holds_a_scale_down() -> None:
    behaviour = Behaviour()
    assert behaviour.settle(0.0, 8, 8, 1, 10) == 8
    assert behaviour.settle(400.0, 8, 3, 1, 10) == 3


def test_a_slow_scale_up_needs_every_recommendation_of_its_window() -> None:
    shipped = Rules(240.0, (Limit("pods", 10, 150.0),))
    behaviour = Behaviour(shipped, shipped)
    assert behaviour.settle(0.0, 4, 6, 1, 10) == 4
    assert behaviour.settle(120.0, 4, 5, 1, 10) == 4
    assert behaviour.settle(240.0, 4, 6, 1, 10) == 5  # 5 was asked for 120 s ago
    assert behaviour.settle(375.0, 5, 6, 1, 10) == 6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.integers(0, 60)), min_size=1, max_size=60))
def test_replicas_stay_in_their_bounds_and_never_more_than_double_or_plus_four_in_15_s(
    steps: list[tuple[float, int]],
) -> None:
    behaviour, current, now = Behaviour(), 4, 0.0
    counts = [(0.0, 4)]
    for delay, desired in steps:
        now += delay
        after = behaviour.settle(now, current, desired, 2, 40)
        assert 2 <= after <= 40
        since = [n for t, n in counts if t > now - 15.0] + [current]
        assert after <= max(current, min(since) + 4, 2 * min(since)) or after <= max(since) * 2
        current = after
        counts.append((now, current))
