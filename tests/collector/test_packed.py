"""Packed histograms come out as they went in."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Histogram
from collector.packed import pack


@st.composite
def histograms(draw: st.DrawFn) -> Histogram | None:
    if draw(st.booleans()):
        return None
    size = draw(st.integers(1, 6))
    unit = draw(st.sampled_from([1.0, 0.5, 2.0**31, 2.0**40]))
    steps = draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size))
    bounds = np.array([*range(size - 1), np.inf], dtype=np.float64)
    return Histogram(bounds, np.cumsum(steps) * unit, draw(st.floats(0, 1e9)))


@settings(deadline=None)
@given(st.lists(histograms(), max_size=6))
def test_round_trip(rows: list[Histogram | None]) -> None:
    first = pack(rows)
    for packed in (first, pack(rows, first)):
        totals = packed.totals()
        for index, row in enumerate(rows):
            back = packed.row(index)
            if row is None:
                assert back is None
                assert np.isnan(totals[index])
                continue
            assert back is not None
            np.testing.assert_array_equal(back.counts, row.counts)
            assert back.counts.dtype == np.float64
            assert back.bounds is row.bounds
            assert (back.sum, totals[index]) == (row.sum, row.count)
    assert pack(rows, first).bounds is first.bounds


def test_counts_take_four_bytes_where_they_fit() -> None:
    bounds = np.array([1.0, np.inf])
    assert pack([Histogram(bounds, np.array([1.0, 2.0]), 3.0)]).counts.dtype == np.uint32
    assert pack([Histogram(bounds, np.array([1.0, 2.0**32]), 3.0)]).counts.dtype == np.float64
    assert pack([Histogram(bounds, np.array([0.5, 2.0]), 3.0)]).counts.dtype == np.float64
