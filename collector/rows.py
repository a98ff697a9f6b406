"""Cells of one target as one scrape gave them, before they are joined into a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.model import Cell, FloatArray, Histogram, SignalState, StateArray

SELF_ROW = ""  # key of the one row of an engine target: the target itself


@dataclass(frozen=True)
class Rows:
    """Rows of one level (endpoint, device or route) of one target.

    rows: (R) row keys; columns: (C) canonical scalar signals that the product can give at this level.
    value: (R, C), NaN unless the state is usable; state: (R, C) of SignalState.
    histograms: signal -> R entries, None unless usable; histogram_state: signal -> (R,) of SignalState.
    labels: one mapping a row: identity, such as `host`, `pod`, `model` of a device, `cluster` of an endpoint.
    reasons: (row index, signal) -> why the cell is not usable, or what a usable value leaves out.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: FloatArray
    state: StateArray
    histograms: Mapping[str, Sequence[Histogram | None]] = field(default_factory=dict)
    histogram_state: Mapping[str, StateArray] = field(default_factory=dict)
    labels: tuple[Mapping[str, str], ...] = ()
    reasons: Mapping[tuple[int, str], str] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Rows:
        return cls((), (), np.empty((0, 0)), np.empty((0, 0), dtype=np.uint8))

    def cell(self, row: str, signal: str) -> Cell:
        """One scalar cell; NEVER_SEEN where there is no such row or signal."""
        if row not in self.rows or signal not in self.columns:
            return Cell(float("nan"), SignalState.NEVER_SEEN)
        r, c = self.rows.index(row), self.columns.index(signal)
        return Cell(float(self.value[r, c]), SignalState(int(self.state[r, c])))

    def histogram(self, row: str, signal: str) -> Histogram | None:
        if row not in self.rows or signal not in self.histograms:
            return None
        return self.histograms[signal][self.rows.index(row)]
