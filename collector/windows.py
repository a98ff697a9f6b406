"""Arithmetic of one window of one signal over all rows: what `collector.history` answers with.

Every function takes the window and the time it starts at, and gives values and states, both (R,). A state
here speaks of the window only (KNOWN, WARMING, RESET, STALE); the latest cell's own state comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.blocks import Window
from collector.counters import BoolArray, Mark
from collector.model import FloatArray, SignalState, StateArray

MIN_SAMPLES = 3
MIN_COVERAGE = 0.5
_ROUNDING_S = 1e-3
# Plain numbers: looking up an enum's member costs as much as the arithmetic on a row, tens of thousands of times.
_KNOWN, _WARMING, _STALE, _RESET = (
    int(state) for state in (SignalState.KNOWN, SignalState.WARMING, SignalState.STALE, SignalState.RESET)
)
_CUT, _FALL, _RESTART = int(Mark.CUT), int(Mark.FALL), int(Mark.RESTART)


@dataclass(frozen=True)
class Span:
    """What of the window belongs together, per row, all (R,); first and last are positions in the window."""

    samples: NDArray[np.intp]
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    fell: BoolArray  # an unproven fall lies after the first sample
    restarted: BoolArray  # a proven restart lies after the first sample


def span(window: Window, start: float) -> Span:
    """The samples since `start`, from the last CUT on."""
    held = window.sampled_since(start)
    length, rows = held.shape
    if not length:
        none, no = np.zeros(rows, dtype=np.intp), np.zeros(rows, dtype=np.bool_)
        return Span(none, none, none, no, no)
    tick = np.arange(length)[:, None]
    cut = np.where(held & (window.mark == _CUT), tick, 0).max(axis=0)
    held &= tick >= cut
    first = held.argmax(axis=0)
    last = length - 1 - held[::-1].argmax(axis=0)
    after = held & (tick > first)
    return Span(
        held.sum(axis=0),
        first,
        last,
        (after & (window.mark == _FALL)).any(axis=0),
        (after & (window.mark == _RESTART)).any(axis=0),
    )


def _ends(values: FloatArray, spans: Span) -> tuple[FloatArray, FloatArray]:
    rows = np.arange(values.shape[1])
    return values[spans.first, rows], values[spans.last, rows]


def _counter(window: Window, start: float) -> tuple[FloatArray, FloatArray, StateArray]:
    """Increase, seconds between the first and the last sample, and state."""
    spans = span(window, start)
    if not window.ticks.size:
        nothing = np.full(spans.samples.shape, np.nan)
        return nothing, nothing, np.full(spans.samples.shape, _STALE, dtype=np.uint8)
    first_total, last_total = _ends(window.total, spans)
    with np.errstate(invalid="ignore"):  # rows without a sample have times of -inf
        first_time, last_time = _ends(window.times, spans)
        covered = last_time - first_time
    asked = float(window.at[-1]) - start
    enough = (spans.samples >= MIN_SAMPLES) & (covered >= MIN_COVERAGE * asked - _ROUNDING_S)
    state = np.where(enough, _KNOWN, _WARMING).astype(np.uint8)
    state[spans.fell] = _RESET
    return last_total - first_total, covered, state


def increase(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """The counter's increase between the first and the last sample."""
    total, _, state = _counter(window, start)
    return total, state


def rate(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """The increase per second between the first and the last sample."""
    total, covered, state = _counter(window, start)
    value = np.full(total.shape, np.nan)
    known = state == _KNOWN
    value[known] = total[known] / covered[known]
    return value, state


def _gauge_state(samples: NDArray[np.intp], least: int) -> StateArray:
    state = np.where(samples >= least, _KNOWN, _WARMING).astype(np.uint8)
    state[samples == 0] = _STALE
    return state


def mean(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """Mean of the samples, each counted alike."""
    held = window.sampled_since(start)
    samples = held.sum(axis=0)
    total = np.where(held, window.value, 0.0).sum(axis=0)
    value = np.full(samples.shape, np.nan)
    np.divide(total, samples, out=value, where=samples > 0)
    return value, _gauge_state(samples, 1)


def minimum(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """Lowest sample."""
    held = window.sampled_since(start)
    value = np.where(held, window.value, np.inf).min(axis=0, initial=np.inf)
    return value, _gauge_state(held.sum(axis=0), 1)


def maximum(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """Highest sample."""
    held = window.sampled_since(start)
    value = np.where(held, window.value, -np.inf).max(axis=0, initial=-np.inf)
    return value, _gauge_state(held.sum(axis=0), 1)


def slope(window: Window, start: float) -> tuple[FloatArray, StateArray]:
    """Least-squares slope of the samples, units per second; WARMING below three samples."""
    held = window.sampled_since(start)
    samples = held.sum(axis=0)
    count = np.maximum(samples, 1)
    since = np.where(held, window.times - start, 0.0)
    value = np.where(held, window.value, 0.0)
    from_mean = np.where(held, since - since.sum(axis=0) / count, 0.0)
    spread = (from_mean**2).sum(axis=0)
    result = np.full(samples.shape, np.nan)
    np.divide((from_mean * value).sum(axis=0), spread, out=result, where=spread > 0)
    return result, _gauge_state(samples, MIN_SAMPLES)


def histogram_ends(window: Window, start: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Tick numbers of the oldest and newest sample to subtract, both (R,).

    Oldest -1: a proven restart lies between, the newest alone is what the new process observed. Newest -1:
    there is no difference to take (fewer than two samples, or an unproven fall).
    """
    spans = span(window, start)
    none = np.full(spans.samples.shape, -1, dtype=np.intp)
    if not window.ticks.size:
        return none, none
    possible = (spans.samples >= 2) & ~spans.fell
    newest = np.where(possible, window.ticks[spans.last], -1)
    return np.where(spans.restarted, -1, window.ticks[spans.first]), newest
