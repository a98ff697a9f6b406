import pytest
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
