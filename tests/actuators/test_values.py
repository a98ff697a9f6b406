from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.model import Lever
from actuators.values import canonical, out_of_range, same

VALUES = st.none() | st.floats(min_value=0, max_value=100)


@given(st.sampled_from(Lever), VALUES)
def test_canonical_is_a_fixed_point_and_means_the_same(lever: Lever, value: float | None) -> None:
    once = canonical(lever, value)
    assert canonical(lever, once) == once
    assert same(lever, value, once)


@pytest.mark.parametrize(
    ("lever", "left", "right", "expected"),
    [
        (Lever.WEIGHT, None, 100.0, True),
        (Lever.WEIGHT, 0.0, None, False),
        (Lever.ADMISSION, 100.0, None, True),
        (Lever.ADMISSION, 0.0, None, False),
        (Lever.BREAKER, 100.0, None, False),
        (Lever.BREAKER, 33.4, 33.0, True),
        (Lever.DRAIN, None, 0.0, True),
        (Lever.SCALE, None, 0.0, False),
    ],
)
def test_off_and_zero_are_told_apart(lever: Lever, left: float | None, right: float | None, expected: bool) -> None:
    assert same(lever, left, right) is expected


def test_ranges() -> None:
    assert out_of_range(Lever.SCALE, None) is not None
    assert out_of_range(Lever.SCALE, 12.0) is None
    assert out_of_range(Lever.WEIGHT, 101.0) is not None
    assert out_of_range(Lever.BREAKER, None) is None
    assert out_of_range(Lever.BREAKER, float("nan")) is not None
