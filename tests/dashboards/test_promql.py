"""The lint's own reader of PromQL."""

from __future__ import annotations

import pytest

from tests.dashboards import promql


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('sum by (job, le) (rate(a_bucket{le="2.5",b=~"x or y{1}"}[5m])) / (b > 0)', {"a_bucket", "b"}),
        ("max by (x) (llm:a:ratio offset 15m) unless on (job) c", {"llm:a:ratio", "c"}),
        ("a / on (x) group_left quantile by (x) (0.5, b) and ignoring (z) c", {"a", "b", "c"}),
        ("sum (up) == 0 or vector(0)", {"up"}),
        ("time() - last_seconds > 1e3", {"last_seconds"}),
    ],
)
def test_metrics(expr: str, names: set[str]) -> None:
    assert promql.metrics(expr) == names


def test_counter_as_gauge_is_seen() -> None:
    counters = {"a_total", "b_total"}
    assert promql.counted_outside_rate("rate(a_total[1m]) + b_total", counters) == {"b_total"}
    assert promql.counted_outside_rate('sum(increase(a_total{x="1"}[1m]))', counters) == set()


def test_matched_labels_and_ranges() -> None:
    expr = 'rate(a{job=~"$job",x!="y"}[$__rate_interval])'
    assert promql.matched_labels(expr) == {"job", "x"}
    assert promql.ranges(expr) == ["$__rate_interval"]


def test_unknown_variable_is_an_error() -> None:
    assert promql.substitute('a{x="$pool"}[$__range]', {"pool": "p", "__range": "1h"}) == 'a{x="p"}[1h]'
    with pytest.raises(ValueError, match="expected only known variables"):
        promql.substitute("a{x='$nobody'}", {"pool": "p"})
