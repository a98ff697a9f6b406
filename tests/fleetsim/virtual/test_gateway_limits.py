from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fleetsim import settings
from fleetsim.virtual.gateway_limits import SHED_ALL, SHED_RETRY, AdmissionControl, Limits
from tests.fleetsim.virtual.gateway_parts import FakePort, Rig


def limits(own: float | None = 20.0) -> Limits:
    return Limits(own, random.Random(1))


def test_retries_are_shed_before_all_and_with_the_word_not_to_retry() -> None:
    held = limits()
    held.set("retry_budget", 0.0)
    assert held.refusal(retry=True) == SHED_RETRY == {"retry-after": "5", "x-should-retry": "false"}
    assert held.refusal(retry=False) is None
    held.set("admission", 0.0)
    assert held.refusal(retry=True) == SHED_RETRY
    assert held.refusal(retry=False) == SHED_ALL == {"retry-after": "5"}


@pytest.mark.parametrize("let_in", [10.0, 70.0])
def test_a_percentage_is_let_in(let_in: float) -> None:
    held = limits()
    held.set("admission", let_in)
    passed = sum(held.refusal(retry=False) is None for _ in range(5000))
    assert passed / 50 == pytest.approx(let_in, abs=2.5)


def test_off_is_off() -> None:
    held = limits()
    for lever in ("breaker", "admission", "retry_budget"):
        held.set(lever, 1.0)
        held.set(lever, None)
        assert held.value(lever) is None
    assert held.breaker == float("inf") and held.refusal(retry=True) is None


@pytest.mark.parametrize(
    ("lever", "value"),
    [("admission", 101.0), ("admission", -1.0), ("retry_budget", float("nan")), ("breaker", -1.0), ("weight", 1.0)],
)
def test_values_that_no_gateway_takes(lever: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"expected .*, found"):
        limits().set(lever, value)


@pytest.mark.parametrize(
    ("own", "lever", "expected"), [(20.0, None, 20.0), (20.0, 5.0, 5.0), (20.0, 50.0, 20.0), (None, 7.0, 7.0)]
)
def test_the_gateways_own_budget_is_the_lower_one(own: float, lever: float | None, expected: float) -> None:
    held = limits(own)
    held.set("retry_budget", lever)
    assert held.own_retry_percent == expected


def admission(**options: float) -> AdmissionControl:
    return AdmissionControl(settings.AdmissionControl.model_validate(options), random.Random(1))


def test_the_probability_is_envoys_formula() -> None:
    filtered = admission()
    for i in range(100):
        filtered.record(1.0, success=i < 38)
    # (100 - 38 / 0.95) / 101
    assert filtered.probability(1.0) == pytest.approx(60 / 101)
    assert filtered.probability(30.9) == pytest.approx(60 / 101)
    assert filtered.probability(31.0) == 0.0  # the window has slid past it


def test_aggression_and_the_highest_probability() -> None:
    steep, bounded = admission(aggression=2.0, max_rejection=1.0), admission(max_rejection=0.5)
    for filtered in (steep, bounded):
        for _ in range(99):
            filtered.record(0.0, success=False)
    assert steep.probability(0.0) == pytest.approx((99 / 100) ** 0.5)
    assert bounded.probability(0.0) == 0.5


def test_few_requests_are_let_in_whatever_becomes_of_them() -> None:
    filtered = admission(rps_threshold=10.0)
    for second in range(5):
        for _ in range(9):
            filtered.record(float(second), success=False)
    assert filtered.probability(5.0) == 0.0
    for _ in range(20):
        filtered.record(5.0, success=False)
    assert filtered.probability(5.0) > 0.5


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=80))
def test_the_probability_equals_a_count_over_the_window(records: list[tuple[int, bool]]) -> None:
    filtered, now, told = admission(), 0.0, []
    for step, success in records:
        now += step
        filtered.record(now, success)
        told.append((now, success))
        inside = [ok for at, ok in told if now - at < 30]
        expected = max(0.0, (len(inside) - sum(inside) / 0.95) / (len(inside) + 1))
        assert filtered.probability(now) == pytest.approx(min(expected, 0.8))


def test_the_gateway_feeds_the_filter_and_obeys_it() -> None:
    rig = Rig(admission_control={"max_rejection": 0.8})
    rig.ports[0].reply = lambda port, attempt: FakePort.fail(port, attempt, 503)
    for _ in range(400):
        rig.send()
        rig.run(0.05)
    assert rig.gateway.admission is not None
    rejected, reached = rig.gateway.admission.rejected, rig.gateway.stats.first.total
    assert rejected + reached == 400 and rig.client.told == ["503"] * 400
    assert rejected / 400 == pytest.approx(0.75, abs=0.1)
