"""What holds for every series: no negative rate, no number from unknown, no effect of reading twice."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.history import History
from collector.model import Level, SignalState
from tests.collector.series import Value, frame

TOKENS = "generation_tokens"
START = "process_start_time"

# The machine may be busy: a slow example is no failure.
unhurried = settings(deadline=None, max_examples=60)
increments = st.lists(st.floats(0, 1e6), min_size=1, max_size=30)
windows = st.sampled_from([5.0, 15.0, 60.0])
unknown = st.sampled_from([s for s in SignalState if not s.usable])


@unhurried
@given(increments, windows, st.floats(0.5, 20.0))
def test_a_counter_that_only_grows_has_its_true_mean_rate(steps: list[float], window_s: float, step_s: float) -> None:
    history = History()
    totals = list(accumulate(steps))
    for i, total in enumerate(totals):
        history.append(frame(1e9 + i * step_s, {"e0": {TOKENS: total}}))
        cell = history.rate(Level.ENDPOINT, TOKENS, window_s).cell("e0")
        if cell.known is not None:
            assert 0.0 <= cell.known <= max(steps) / step_s * (1 + 1e-6) + 1e-6


@unhurried
@given(st.lists(st.floats(0, 1e5), min_size=3, max_size=30), st.data())
def test_reading_the_same_scrape_again_changes_nothing(values: list[float], data: st.DataObject) -> None:
    once, again = History(), History()
    at = 0.0
    for value in values:
        at += 5.0
        once.append(frame(at, {"e0": {TOKENS: value}}))
        again.append(frame(at, {"e0": {TOKENS: value}}))
        for late in data.draw(st.lists(st.floats(0.01, 4.9), max_size=3, unique=True).map(sorted)):
            again.append(frame(at + late, {"e0": {TOKENS: value}}, ages={"e0": late}))
    once.append(frame(at + 4.95, {"e0": {TOKENS: values[-1]}}, ages={"e0": 4.95}))
    again.append(frame(at + 4.95, {"e0": {TOKENS: values[-1]}}, ages={"e0": 4.95}))
    for read in (once.rate, once.mean, once.minimum, once.maximum, once.slope, once.increase):
        other = getattr(again, read.__name__)
        first, second = (r(Level.ENDPOINT, TOKENS, 60.0).cell("e0") for r in (read, other))
        assert first.state is second.state
        assert first.known == pytest.approx(second.known)
    np.testing.assert_allclose(
        once.samples(Level.ENDPOINT, "e0", TOKENS, 60.0).values,
        again.samples(Level.ENDPOINT, "e0", TOKENS, 60.0).values,
    )


@unhurried
@given(increments, st.integers(0, 29), st.floats(0, 1e6))
def test_a_proven_restart_anywhere_adds_up_to_all_that_was_counted(
    steps: list[float], place: int, first: float
) -> None:
    """Growth before the restart, the new process's first value, and growth after it."""
    place = min(place, len(steps))
    history = History()
    before, after = (
        list(accumulate(steps[:place], initial=1e7)),
        list(accumulate(steps[place:], initial=first)),
    )
    samples = [(v, -1e6) for v in before] + [(v, float(len(before)) - 0.5) for v in after]
    for i, (value, start) in enumerate(samples):
        history.append(frame(float(i), {"e0": {TOKENS: value, START: start}}))
    cell = history.increase(Level.ENDPOINT, TOKENS, float(len(samples))).cell("e0")
    if len(samples) >= 3:
        assert cell.known == pytest.approx(sum(steps) + first, rel=1e-9, abs=1e-3)


@unhurried
@given(st.lists(st.one_of(st.floats(0, 1e9), unknown), min_size=1, max_size=40), windows, st.booleans())
def test_nothing_ever_gives_a_negative_or_infinite_rate_or_a_number_from_an_unknown_cell(
    cells: list[float | SignalState], window_s: float, route: bool
) -> None:
    level = Level.ROUTE if route else Level.ENDPOINT
    names = ("attempts", "arrivals", "upstream_2xx") if route else (TOKENS,)
    history = History()
    for i, cell in enumerate(cells):
        row: dict[str, Value] = dict.fromkeys(names, cell)
        history.append(frame(float(i), {"e0": row}, level))
        rate = history.rate(level, names[0], window_s).cell("e0")
        mean = history.mean(level, names[0], window_s).cell("e0")
        assert rate.known is None or 0.0 <= rate.known < float("inf")
        assert np.isnan(rate.value) == (not rate.state.usable)
        if isinstance(cell, SignalState):
            assert (rate.state, mean.state) == (cell, cell)
        else:
            assert mean.state is SignalState.KNOWN
            assert 0.0 <= mean.value <= 1e9


@unhurried
@given(st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=60))
def test_rows_that_come_and_go_in_any_way_keep_their_own_numbers(presence: list[set[int]]) -> None:
    history = History(retention_s=20.0)
    for i, present in enumerate(presence):
        rows: dict[str, dict[str, Value]] = {f"e{n}": {TOKENS: 1e6 * n + (n + 1.0) * i} for n in present}
        history.append(frame(float(i), rows))
        column = history.rate(Level.ENDPOINT, TOKENS, 8.0)
        assert column.rows == tuple(rows)
        for n in present:
            cell = column.cell(f"e{n}")
            assert cell.state in (SignalState.KNOWN, SignalState.WARMING)
            assert cell.known is None or cell.known == pytest.approx(n + 1.0)
