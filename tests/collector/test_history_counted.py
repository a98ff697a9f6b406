"""`History.counted` says of all rows at once what `delta` says of each: restarts, lost rows and changed buckets too."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.history import History
from collector.model import Frame, Histogram, Level, SignalState, Table, Topology

NAMES = ("a", "b", "c")
COARSE, FINE = np.array([1.0, np.inf]), np.array([0.5, 1.0, 2.0, np.inf])
# What a row does in a tick: gone, there without a histogram, observe so much more, or begin anew.
_step = st.sampled_from(["gone", "none", "more", "more", "more", "reset", "fine"])


def _frame(at: float, rows: dict[str, Histogram | None]) -> Frame:
    names = tuple(rows)
    blank = Table.empty(names, ("requests_running",))
    states = [SignalState.MISSING if h is None else SignalState.KNOWN for h in rows.values()]
    age = np.zeros_like(blank.age_s)
    value, state = np.ones_like(blank.value), np.full_like(blank.state, SignalState.KNOWN)
    histograms = {"ttft": list(rows.values())}
    table = Table(names, blank.columns, value, state, age, histograms, {"ttft": np.array(states, dtype=np.uint8)})
    empty = Table.empty((), ())
    return Frame(at, table, empty, empty, Topology({}, {}, {}, {}), ())


@settings(deadline=None, max_examples=150)
@given(
    steps=st.lists(st.tuples(_step, _step, _step), min_size=1, max_size=12),
    window_s=st.floats(1.0, 8.0),
    ending_s=st.integers(0, 4),
)
def test_all_rows_at_once_are_what_each_row_is(
    steps: list[tuple[str, str, str]], window_s: float, ending_s: int
) -> None:
    history, counts = History(20.0), dict.fromkeys(NAMES, 0.0)
    for tick, doing in enumerate(steps):
        rows: dict[str, Histogram | None] = {}
        for name, what in zip(NAMES, doing, strict=True):
            if what == "gone":
                continue
            counts[name] = 1.0 if what == "reset" else counts[name] + 3.0
            bounds = FINE if what == "fine" else COARSE
            cumulative = np.linspace(1.0, 2.0, bounds.size).round(0) * counts[name]
            rows[name] = None if what == "none" else Histogram(bounds, cumulative, 0.3 * counts[name])
        history.append(_frame(float(tick), rows))
    counted = history.counted(Level.ENDPOINT, "ttft", window_s, float(ending_s))
    for row, count, total in zip(counted.rows, counted.count, counted.sum, strict=True):
        delta = history.delta(Level.ENDPOINT, row, "ttft", window_s, float(ending_s))
        expected = (np.nan, np.nan) if delta is None else (delta.count, delta.sum)
        np.testing.assert_equal((count, total), expected)
