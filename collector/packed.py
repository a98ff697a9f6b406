"""Histograms of one signal at one tick, packed: a history holds thousands of ticks, and objects cost more
memory than their numbers do, and time at every garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np
from numpy.typing import NDArray

from collector.model import FloatArray, Histogram

_UINT32_END = 2.0**32


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of R rows, None where a row has no histogram; shared by all ticks in which they are the same."""

    rows: tuple[FloatArray | None, ...]
    last: NDArray[np.intp]  # (R,) position of the +Inf bucket, -1 without a histogram
    width: int  # buckets of the widest row
    even: bool  # every row has a histogram of that width


@dataclass(frozen=True, slots=True)
class PackedHistograms:
    """counts: (R, width), whole numbers as uint32 where they fit, short rows filled up with 0; sums: (R,)."""

    bounds: _Bounds
    counts: NDArray[np.uint32] | FloatArray
    sums: FloatArray

    def row(self, index: int) -> Histogram | None:
        """The histogram as it was packed."""
        bounds = self.bounds.rows[index]
        if bounds is None:
            return None
        return Histogram(bounds, self.counts[index, : bounds.size].astype(np.float64), float(self.sums[index]))

    def totals(self) -> FloatArray:
        """(R,) observations of each row, NaN where it has no histogram."""
        last = self.bounds.last
        if not self.counts.size:
            return np.full(last.shape, np.nan)
        return np.where(last >= 0, self.counts[np.arange(last.size), last], np.nan)

    def observed(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Number and sum of the observations of `rows`, NaN where a row has no histogram or is -1."""
        last = np.where(rows >= 0, self.bounds.last[rows], -1)
        if not self.counts.size:
            nothing = np.full(rows.shape, np.nan)
            return nothing, nothing
        there = last >= 0
        return np.where(there, self.counts[rows, last], np.nan), np.where(there, self.sums[rows], np.nan)

    def since(
        self, rows: NDArray[np.intp], earlier: PackedHistograms, earlier_rows: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray]:
        """The same for what was observed since `earlier`, whose `earlier_rows` are these rows there.

        NaN too where buckets changed or a count fell (a reset), as `Histogram.minus` has it.
        """
        pairs = zip(self.observed(rows), earlier.observed(earlier_rows), strict=True)
        count, total = (now - before for now, before in pairs)
        if not np.isfinite(count).any():
            return count, total
        width = min(self.bounds.width, earlier.bounds.width)
        grown = self.counts[rows, :width].astype(np.float64) - earlier.counts[earlier_rows, :width]
        # Counts are cumulative: none may have grown more than the next. Behind a row's last bucket there are only 0s.
        beyond = np.arange(1, width) > self.bounds.last[rows, None]
        good = (grown[:, 0] >= 0) & ((grown[:, 1:] >= grown[:, :-1]) | beyond).all(axis=1)
        good &= _alike(self.bounds, rows, earlier.bounds, earlier_rows)
        return np.where(good, count, np.nan), np.where(good, total, np.nan)


def pack(histograms: Sequence[Histogram | None], before: PackedHistograms | None = None) -> PackedHistograms:
    """Pack one signal's rows; `before` is the tick before, whose bounds are kept where they are the same."""
    rows = tuple([None if h is None else h.bounds for h in histograms])
    bounds = before.bounds if before is not None and _same(before.bounds.rows, rows) else _bounds(rows)
    if bounds.even:
        flat = np.concatenate([h.counts for h in histograms if h is not None])
        counts = flat.reshape(len(rows), bounds.width)
    else:
        counts = np.zeros((len(rows), bounds.width))
        for row, histogram in enumerate(histograms):
            if histogram is not None:
                counts[row, : histogram.counts.size] = histogram.counts
    sums = np.array([np.nan if h is None else h.sum for h in histograms])
    return PackedHistograms(bounds, _compact(counts), sums)


def _alike(now: _Bounds, rows: NDArray[np.intp], before: _Bounds, before_rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which rows have the same bounds; mostly they are the same objects."""
    if now is before and np.array_equal(rows, before_rows):
        return np.ones(rows.shape, dtype=np.bool_)
    pairs = ((now.rows[i], before.rows[j]) for i, j in zip(rows.tolist(), before_rows.tolist(), strict=True))
    return np.array([a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs])


def _same(before: tuple[FloatArray | None, ...], now: tuple[FloatArray | None, ...]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _bounds(rows: tuple[FloatArray | None, ...]) -> _Bounds:
    last = np.array([-1 if bounds is None else bounds.size - 1 for bounds in rows], dtype=np.intp)
    width = int(last.max(initial=-1)) + 1
    return _Bounds(rows, last, width, even=width > 0 and bool((last == width - 1).all()))


def _compact(counts: FloatArray) -> NDArray[np.uint32] | FloatArray:
    if not counts.size or counts.min() < 0 or not counts.max() < _UINT32_END:
        return counts
    whole = counts.astype(np.uint32)
    return whole if bool((whole == counts).all()) else counts
