import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.exposition import Family, Histogram, Value, one_two_five


def test_histogram_is_cumulative_and_takes_its_bounds_inclusively() -> None:
    histogram = Histogram("h", {"a": "b"}, (1, 2.5))
    for value in (0.5, 1.0, 2.0, 9.0):
        histogram.observe(value)
    (family,) = text_string_to_metric_families(Family("h", "histogram", "Text.", [histogram]).text())
    buckets = {s.labels["le"]: s.value for s in family.samples if "le" in s.labels}
    assert buckets == {"1.0": 2, "2.5": 3, "+Inf": 4}
    assert histogram.count == 4
    assert histogram.sum == 12.5


def test_label_values_are_escaped() -> None:
    text = Family("g", "gauge", "Text.", [Value("g", {"x": 'a"b\\c\nd'}, 1.0)]).text()
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"x": 'a"b\\c\nd'}


@pytest.mark.parametrize(("limit", "last"), [(512, 500.0), (500, 500.0), (8192, 5000.0), (1, 1.0)])
def test_one_two_five_ends_at_the_limit(limit: int, last: float) -> None:
    bounds = one_two_five(limit)
    assert bounds[-1] == last
    assert list(bounds) == sorted(set(bounds))


progressions = st.tuples(st.floats(1e-4, 3), st.floats(0, 0.05), st.integers(1, 400), st.integers(1, 64))


@settings(max_examples=150, deadline=None)
@given(progression=progressions, before=st.lists(st.floats(0, 5), max_size=20))
def test_progression_counts_as_each_of_its_values(
    progression: tuple[float, float, int, int], before: list[float]
) -> None:
    first, increment, steps, times = progression
    bounds = (0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5)
    together, singly = Histogram("h", {}, bounds), Histogram("h", {}, bounds)
    for value in before:
        together.observe(value)
        singly.observe(value)
    together.observe_progression(first, increment, steps, times)
    for step in range(steps):
        singly.observe_many(first + increment * step, times)
    assert together.counts == singly.counts
    assert together.count == len(before) + steps * times
    assert together.sum == pytest.approx(singly.sum)


@given(values=st.lists(st.one_of(st.floats(-1, 20), st.sampled_from([1.0, 2.0, 4.0]))))
def test_values_taken_together_count_as_each_of_them(values: list[float]) -> None:
    together, singly = Histogram("h", {}, (1, 2, 4)), Histogram("h", {}, (1, 2, 4))
    together.observe(3.0)
    singly.observe(3.0)
    for value in values:
        singly.observe(value)
    together.observe_all(list(values))
    assert together.counts == singly.counts
    assert together.sum == pytest.approx(singly.sum)
