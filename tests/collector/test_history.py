"""Windows: what makes a number, what does not, and which word says why not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collector.history import History
from collector.model import Cell, Histogram, Level, SignalState
from tests.collector.series import Value, frame, history_of

TOKENS = "generation_tokens"
START = "process_start_time"


def rate(history: History, window_s: float = 60.0, row: str = "e0", signal: str = TOKENS) -> Cell:
    return history.rate(Level.ENDPOINT, signal, window_s).cell(row)


def counter(values: list[float], step_s: float = 15.0, **others: Value) -> History:
    return history_of([(i * step_s, {TOKENS: v, **others}) for i, v in enumerate(values)])


def test_rate_is_the_increase_between_first_and_last_sample_over_their_time() -> None:
    history = counter([100, 250, 400, 700])
    assert rate(history) == Cell(600 / 45, SignalState.KNOWN)
    assert history.increase(Level.ENDPOINT, TOKENS, 60.0).cell("e0").value == 600


@pytest.mark.parametrize(
    ("step_s", "ticks", "window_s"), [(1.0, 4, 6.0), (15.0, 3, 60.0), (1.0, 6, 5.0), (5.0, 3, 15.0)]
)
def test_windows_in_use_give_a_rate_at_the_first_tick_that_covers_half(
    step_s: float, ticks: int, window_s: float
) -> None:
    assert rate(counter([10.0 * i for i in range(ticks)], step_s), window_s).state is SignalState.KNOWN


def test_two_samples_or_less_than_half_of_the_window_are_warming() -> None:
    assert rate(counter([0, 100]), 30.0).state is SignalState.WARMING
    assert rate(counter([0, 1, 2, 3], step_s=1.0), 60.0).state is SignalState.WARMING
    assert math.isnan(rate(counter([0, 100]), 30.0).value)


def test_samples_outside_the_window_do_not_count() -> None:
    assert rate(counter([0, 90_000, 90_150, 90_300, 90_450, 90_600, 90_750])) == Cell(10.0, SignalState.KNOWN)


def test_without_a_frame_or_signal_or_row_there_is_no_number() -> None:
    empty = History()
    assert empty.latest is None
    assert empty.span_s() == 0.0
    assert empty.rate(Level.ENDPOINT, TOKENS, 60.0).rows == ()
    history = counter([1, 2, 3])
    assert rate(history, signal="preemptions").state is SignalState.NEVER_SEEN
    assert rate(history, row="e9").state is SignalState.NEVER_SEEN
    assert history.counter_state(Level.ENDPOINT, "e9", TOKENS) is SignalState.NEVER_SEEN
    assert history.samples(Level.ENDPOINT, "e9", TOKENS, 60.0).times.size == 0
    assert history.delta(Level.ENDPOINT, "e9", "ttft", 60.0) is None


@pytest.mark.parametrize("state", [s for s in SignalState if not s.usable])
def test_an_unknown_latest_cell_gives_its_own_reason_and_no_number(state: SignalState) -> None:
    history = counter([100, 200, 300, 400])
    history.append(frame(60.0, {"e0": {TOKENS: state}}))
    for column in (
        history.rate(Level.ENDPOINT, TOKENS, 60.0),
        history.increase(Level.ENDPOINT, TOKENS, 60.0),
        history.mean(Level.ENDPOINT, TOKENS, 60.0),
        history.slope(Level.ENDPOINT, TOKENS, 60.0),
    ):
        assert column.cell("e0").state is state
        assert column.cell("e0").known is None
    assert history.counter_state(Level.ENDPOINT, "e0", TOKENS) is state


def test_idle_stays_idle_and_keeps_its_number() -> None:
    history = counter([5, 5, 5, 5])
    idle = frame(60.0, {"e0": {TOKENS: 5.0}})
    idle.endpoints.state[:] = SignalState.IDLE
    history.append(idle)
    assert rate(history) == Cell(0.0, SignalState.IDLE)


def test_a_number_that_is_no_number_is_invalid() -> None:
    history = counter([1, 2, 3, float("inf")])
    assert rate(history).state is SignalState.INVALID


def test_a_value_carried_over_is_the_same_sample() -> None:
    history = history_of([(15.0 * i, {TOKENS: 150.0 * i}) for i in range(4)])
    for failed in range(1, 4):
        at = 45.0 + 5.0 * failed
        history.append(frame(at, {"e0": {TOKENS: 450.0}}, ages={"e0": at - 45.0}))
    assert rate(history) == Cell(10.0, SignalState.KNOWN)
    assert history.samples(Level.ENDPOINT, "e0", TOKENS, 60.0).times.tolist() == [0.0, 15.0, 30.0, 45.0]


def test_a_usable_value_older_than_the_window_is_stale_for_it() -> None:
    history = counter([1, 2, 3, 4], step_s=1.0)
    history.append(frame(12.0, {"e0": {TOKENS: 4.0}}, ages={"e0": 9.0}))
    assert history.mean(Level.ENDPOINT, TOKENS, 5.0).cell("e0").state is SignalState.STALE


def test_the_same_tick_again_changes_nothing_and_a_clock_set_back_starts_anew() -> None:
    history = counter([0, 150, 300])
    history.append(frame(30.0, {"e0": {TOKENS: 9.0}}))
    assert rate(history) == Cell(10.0, SignalState.KNOWN)
    history.append(frame(10.0, {"e0": {TOKENS: 200.0}}))
    assert history.span_s() == 0.0
    assert rate(history).state is SignalState.WARMING


def test_gauges() -> None:
    history = history_of([(float(i), {"requests_waiting": 2.0 * i + 1.0}) for i in range(6)])
    waiting = "requests_waiting"
    assert history.mean(Level.ENDPOINT, waiting, 5.0).cell("e0").value == 6.0
    assert history.minimum(Level.ENDPOINT, waiting, 5.0).cell("e0").value == 1.0
    assert history.maximum(Level.ENDPOINT, waiting, 5.0).cell("e0").value == 11.0
    assert history.slope(Level.ENDPOINT, waiting, 5.0).cell("e0").value == pytest.approx(2.0)
    assert history.samples(Level.ENDPOINT, "e0", waiting, 2.0).values.tolist() == [7.0, 9.0, 11.0]
    short = history_of([(0.0, {waiting: 1.0}), (1.0, {waiting: 5.0})])
    assert short.slope(Level.ENDPOINT, waiting, 5.0).cell("e0").state is SignalState.WARMING
    assert short.mean(Level.ENDPOINT, waiting, 5.0).cell("e0") == Cell(3.0, SignalState.KNOWN)


def test_rows_come_and_go_without_a_spike() -> None:
    history = History()
    for i in range(12):
        rows: dict[str, dict[str, Value]] = {"e0": {TOKENS: 100.0 * i}}
        if not 4 <= i < 8:
            rows["e1"] = {TOKENS: 1e6 + 100.0 * i}
        history.append(frame(10.0 * i, rows))
        cell = history.rate(Level.ENDPOINT, TOKENS, 40.0).cell("e1")
        assert cell.known is None or cell.known == pytest.approx(10.0)
        assert (cell.state is SignalState.NEVER_SEEN) == (4 <= i < 8)
    assert rate(history, 40.0, "e1") == Cell(10.0, SignalState.KNOWN)


def test_a_name_that_comes_back_as_another_process_counts_from_its_start() -> None:
    history = History()
    for i in range(5):
        history.append(frame(10.0 * i, {"e0": {TOKENS: 5e5 + i, START: -900.0}}))
    for i in range(5, 8):
        history.append(frame(10.0 * i, {}))
    for i in range(8, 14):
        history.append(frame(10.0 * i, {"e0": {TOKENS: 50.0 * (i - 7), START: 72.0}}))
        cell = rate(history, 40.0)
        assert cell.known is None or cell.known <= 5.0


def test_rows_gone_longer_than_retention_give_their_place_to_others() -> None:
    history = History(retention_s=300.0)
    for i in range(400):
        rows: dict[str, dict[str, Value]] = {f"pod-{i // 10}": {TOKENS: 1e9 - 1e6 * i + 3.0 * (i % 10)}}
        history.append(frame(5.0 * i, rows))
        cell = rate(history, 30.0, f"pod-{i // 10}")
        assert cell.known is None or cell.known == pytest.approx(0.6)
    assert 300.0 <= history.span_s() <= 300.0 + 32 * 5.0
    store = history._stores[Level.ENDPOINT]
    assert len(store._slots) <= 12
    assert store._start.size <= 24


def test_new_rows_and_new_signals_may_appear_at_any_time() -> None:
    history = History()
    for i in range(60):
        rows: dict[str, dict[str, Value]] = {f"e{n}": {TOKENS: 10.0 * i} for n in range(1 + i)}
        if i >= 20:
            rows["e0"]["preemptions"] = 2.0 * i
        history.append(frame(float(i), rows))
    assert history.rate(Level.ENDPOINT, TOKENS, 20.0).cell("e0").value == 10.0
    assert history.rate(Level.ENDPOINT, "preemptions", 20.0).cell("e0").value == 2.0
    assert history.rate(Level.ENDPOINT, TOKENS, 20.0).cell("e59").state is SignalState.WARMING
    assert history.samples(Level.ENDPOINT, "e40", TOKENS, 100.0).times[0] == 40.0


def buckets(low: float, high: float, more: float) -> Histogram:
    return Histogram(np.array([0.5, 1.0, np.inf]), np.array([low, low + high, low + high + more]), low)


def test_delta_is_newest_minus_oldest_of_the_window() -> None:
    history = history_of([(15.0 * i, {"ttft": buckets(10.0 * i, 5.0 * i, i)}) for i in range(8)])
    delta = history.delta(Level.ENDPOINT, "e0", "ttft", 60.0)
    assert delta is not None
    assert delta.counts.tolist() == [40.0, 60.0, 64.0]
    before = history.delta(Level.ENDPOINT, "e0", "ttft", 30.0, ending_s=60.0)
    assert before is not None
    assert before.count == 32.0
    assert history.rate(Level.ENDPOINT, "ttft", 60.0).cell("e0").value == pytest.approx(16 / 15)
    assert history.delta(Level.ENDPOINT, "e0", "ttft", 10.0) is None
    assert history.delta(Level.ENDPOINT, "e0", "ttft", 60.0, ending_s=1000.0) is None


def test_delta_over_a_restart() -> None:
    before: list[tuple[float, dict[str, Value]]] = [
        (15.0 * i, {"ttft": buckets(100.0 + i, 0, 0), START: -500.0}) for i in range(3)
    ]
    proven = history_of([*before, (45.0, {"ttft": buckets(7, 0, 0), START: 40.0})])
    delta = proven.delta(Level.ENDPOINT, "e0", "ttft", 60.0)
    assert delta is not None
    assert delta.count == 7.0
    unproven = history_of([*before, (45.0, {"ttft": buckets(7, 0, 0), START: -500.0})])
    assert unproven.delta(Level.ENDPOINT, "e0", "ttft", 60.0) is None


def test_delta_of_a_histogram_that_is_gone_is_nothing() -> None:
    history = history_of([(15.0 * i, {"ttft": buckets(10.0 * i, 0, 0)}) for i in range(4)])
    history.append(frame(60.0, {"e0": {TOKENS: 1.0}}))
    assert history.delta(Level.ENDPOINT, "e0", "ttft", 60.0) is None
    history.append(frame(75.0, {"e0": {"ttft": buckets(50, 0, 0)}}))
    delta = history.delta(Level.ENDPOINT, "e0", "ttft", 60.0)
    assert delta is not None
    assert delta.count == 40.0
