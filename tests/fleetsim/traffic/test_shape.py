import random
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traffic import shape
from fleetsim.traffic.arrival import Arrival
from fleetsim.traffic.families import AZURE_CODE, MOONCAKE_CONVERSATION, MOONCAKE_SPREAD
from fleetsim.traffic.figures import measure
from fleetsim.traffic.generate import from_family

arrivals = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(1, 10**5), st.integers(1, 5000)).map(lambda row: Arrival(*row)),
    max_size=40,
).map(sorted)
SETTINGS = settings(deadline=None, max_examples=60)


@given(arrivals, st.floats(1e-3, 1e3))
@SETTINGS
def test_scaling_keeps_requests_and_order(stream: list[Arrival], factor: float) -> None:
    result = list(shape.scaled(iter(stream), factor))
    assert [a[1:] for a in result] == [a[1:] for a in stream]
    assert [a.t for a in result] == [a.t * factor for a in stream]
    assert [a.t for a in result] == sorted(a.t for a in result)


@given(arrivals, st.floats(0, 1), st.integers(0, 100))
@SETTINGS
def test_thinning_takes_a_subsequence(stream: list[Arrival], keep: float, seed: int) -> None:
    result = list(shape.thinned(iter(stream), keep, random.Random(seed)))
    rest = iter(stream)
    assert all(arrival in rest for arrival in result)
    assert list(shape.thinned(iter(stream), 1.0, random.Random(seed))) == stream
    assert list(shape.thinned(iter(stream), 0.0, random.Random(seed))) == []
    # The same draws with a smaller share keep a part of what the larger share keeps.
    fewer = list(shape.thinned(iter(stream), keep / 2, random.Random(seed)))
    more = iter(result)
    assert all(arrival in more for arrival in fewer)


@given(arrivals, st.floats(0, 1e6), st.floats(1, 1e6))
@SETTINGS
def test_windows_part_a_stream(stream: list[Arrival], start: float, width: float) -> None:
    end = start + width
    result = list(shape.window(iter(stream), start, end))
    inside = [a for a in stream if start <= a.t < end]
    assert result == [a._replace(t=a.t - start) for a in inside]


def test_a_window_stops_reading_at_its_end() -> None:
    endless = (Arrival(float(i), 1, 1) for i in count())
    assert len(list(shape.window(endless, 5, 10))) == 5


@given(st.lists(arrivals, max_size=4))
@SETTINGS
def test_merging_keeps_everything_in_order(streams: list[list[Arrival]]) -> None:
    tagged = [[a._replace(tenant=str(i)) for a in stream] for i, stream in enumerate(streams)]
    result = list(shape.merged(*map(iter, tagged)))
    assert result == sorted((a for stream in tagged for a in stream), key=lambda a: (a.t, a.tenant))


def test_thinning_moves_the_dispersion_towards_poisson() -> None:
    """Excess over 1 times the share kept; the mean rate too, lengths unchanged."""
    whole = measure(from_family(AZURE_CODE, 40_000, 1))
    thin = measure(shape.thinned(from_family(AZURE_CODE, 40_000, 1), 0.25, random.Random(1)))
    assert thin.requests == pytest.approx(0.25 * whole.requests, rel=0.03)
    assert thin.dispersion_1s - 1 == pytest.approx(0.25 * (whole.dispersion_1s - 1), rel=0.08)
    assert thin.prompt.mean == pytest.approx(whole.prompt.mean, rel=0.03)


def test_a_wanted_rate_by_thinning_keeps_the_clock_and_by_time_the_requests() -> None:
    own = measure(from_family(MOONCAKE_CONVERSATION, 4000, 1))
    assert own.mean_rate is not None
    assert own.block_reuse is not None
    rng = random.Random(1)
    thin = measure(shape.to_rate(from_family(MOONCAKE_CONVERSATION, 4000, 1), 1.0, own.mean_rate, "thinning", rng))
    assert thin.mean_rate == pytest.approx(1.0, rel=0.05)
    assert thin.duration_s == pytest.approx(own.duration_s, rel=0.01)
    assert thin.block_reuse is not None
    assert thin.block_reuse < own.block_reuse - 0.05
    fast = measure(shape.to_rate(from_family(MOONCAKE_CONVERSATION, 4000, 1), 10.0, own.mean_rate, "time", rng))
    assert fast.mean_rate == pytest.approx(10.0)
    assert (fast.requests, fast.block_reuse, fast.prompt) == (own.requests, own.block_reuse, own.prompt)


def test_spreading_undoes_the_ticks() -> None:
    ticked = list(from_family(MOONCAKE_CONVERSATION, 3600, 1))
    result = list(shape.spread(iter(ticked), 3.0, random.Random(1)))
    assert [a[1:] for a in result] == [a[1:] for a in ticked]
    assert [a.t for a in result] == sorted(a.t for a in result)
    assert all(before.t <= after.t < before.t + 3 for before, after in zip(ticked, result, strict=True))
    assert measure(iter(ticked)).dispersion_1s > 7
    assert measure(iter(result)).dispersion_1s == pytest.approx(MOONCAKE_SPREAD.published.dispersion_1s, abs=0.1)
    assert list(shape.spread(iter([]), 3.0, random.Random(1))) == []


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_shapes_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="expected a time factor"):
        shape.scaled(iter([]), bad)
    with pytest.raises(ValueError, match="expected a tick"):
        list(shape.spread(iter([]), bad, random.Random(1)))
    with pytest.raises(ValueError, match="expected a share"):
        shape.thinned(iter([]), bad or 1.5, random.Random(1))
    with pytest.raises(ValueError, match="expected 0 <= start < end"):
        list(islice(shape.window(iter([]), 5, bad if bad < 5 else float("nan")), 1))
    with pytest.raises(ValueError, match="expected"):
        list(shape.to_rate(iter([]), bad, 1.0, "thinning", random.Random(1)))
