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
