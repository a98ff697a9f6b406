import statistics

import pytest

from fleetsim.jitter import Jitter


def test_factor_depends_on_seed_engine_and_second_alone() -> None:
    asked = Jitter(0.1, seed=7, name="e1")
    times = [0.0, 0.999, 1.0, 17.2, 17.9, 3.5]
    factors = [asked.factor(t) for t in times]
    assert factors == [Jitter(0.1, seed=7, name="e1").factor(t) for t in times]  # in whatever order it is asked
    assert factors[0] == factors[1] != factors[2]
    assert factors[3] == factors[4]
    assert Jitter(0.1, seed=8, name="e1").factor(0.0) != factors[0] != Jitter(0.1, seed=7, name="e2").factor(0.0)


def test_factors_scatter_as_asked_around_one() -> None:
    jitter = Jitter(0.1, seed=1, name="e")
    factors = [jitter.factor(float(t)) for t in range(2000)]
    assert statistics.mean(factors) == pytest.approx(1.0, abs=0.01)
    assert statistics.stdev(factors) == pytest.approx(0.1, rel=0.1)


def test_factors_are_capped_so_that_no_step_takes_less_than_no_time() -> None:
    jitter = Jitter(1.0, seed=1, name="e")
    factors = [jitter.factor(float(t)) for t in range(500)]
    assert min(factors) == pytest.approx(0.3) and max(factors) == pytest.approx(1.7)


def test_none_is_no_jitter() -> None:
    assert Jitter(0.0, seed=1, name="e").factor(3.0) == 1.0


def test_window_ends_at_the_next_whole_second() -> None:
    assert [Jitter.window_end(t) for t in (0.0, 0.5, 1.0, 99.99)] == [1.0, 1.0, 2.0, 100.0]


@pytest.mark.parametrize("sd", [-0.1, 1.5, float("nan")])
def test_senseless_deviation_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Jitter(sd, seed=1, name="e")
