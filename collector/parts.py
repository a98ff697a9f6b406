"""Every number of one body, checked and converted: ranges, blanks, conflicting twins, broken buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from collector.model import FloatArray, Histogram, SignalState, StateArray
from collector.plan import Plan


@dataclass(frozen=True)
class Parts:
    """`slots` and `histograms` follow the plan's `slots` and `buckets`; reasons only where not usable."""

    slots: list[float]  # canonical unit, NaN where not usable
    slot_values: FloatArray
    slot_state: StateArray
    slot_reasons: dict[int, str]
    histograms: Sequence[Histogram | None]
    histogram_state: StateArray
    histogram_reasons: dict[int, str]
    warnings: tuple[str, ...]

    @property
    def flawless(self) -> bool:
        return not self.slot_reasons and not self.histogram_reasons


class PartReader:
    """Checks the numbers of one plan; everything that depends on the layout alone is done once, here."""

    def __init__(self, plan: Plan) -> None:
        slots, buckets = plan.slots, plan.buckets
        self._plan = plan
        self._index = np.array([slot.index for slot in slots], dtype=np.intp)
        self._scale = np.array([slot.signal.scale for slot in slots])
        self._low = np.array([slot.signal.low for slot in slots])
        self._high = np.array([slot.signal.high for slot in slots])
        self._sentinels = np.array(plan.product.sentinels)
        self._slot_twins = [(n, slot.index, twin) for n, slot in enumerate(slots) for twin in slot.twins]
        sizes = [len(part.counts) for part in buckets]
        self._edges = [0, *np.cumsum(sizes, dtype=int).tolist()]
        self._counts = np.array([index for part in buckets for index in part.counts], dtype=np.intp)
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._within = self._owner[1:] == self._owner[:-1]  # steps between buckets of one part
        self._sums = np.array([part.sum_index for part in buckets], dtype=np.intp)
        self._sum_scale = np.array([part.signal.scale for part in buckets])
        self._bucket_twins = [(n, a, b) for n, part in enumerate(buckets) for a, b in part.twins]
        self._broken = [(n, part.broken) for n, part in enumerate(buckets) if part.broken is not None]
        self._checked = [
            (n, part.counts[-1], part.count_index)
            for n, part in enumerate(buckets)
            if part.count_index is not None and part.counts and part.count_index != part.counts[-1]
        ]

    def read(self, values: FloatArray) -> Parts:
        """The parts of one body; `values` are the body's numbers in the layout's order."""
        warnings: list[str] = []
        raw = values[self._index]
        good = (raw >= self._low) & (raw <= self._high) & np.isfinite(raw)
        if self._sentinels.size:
            good &= ~np.isin(raw, self._sentinels)
        state = np.where(good, np.uint8(SignalState.KNOWN), np.uint8(SignalState.INVALID))
        reasons: dict[int, str] = {}
        for n, first, other in self._slot_twins:
            conflict = _conflict(values[first], values[other])
            if conflict is not None:
                reasons[n] = conflict
                warnings.append(f"{self._plan.slots[n].family.name}: {conflict}")
                state[n], good[n] = SignalState.CONFLICT, False
        for n in np.flatnonzero(~good).tolist():
            reasons.setdefault(n, self._why_invalid(n, float(raw[n])))
        numbers = np.where(good, raw * self._scale, np.nan)
        histograms, histogram_state, histogram_reasons = self._read_histograms(values, warnings)
        return Parts(
            slots=numbers.tolist(),
            slot_values=numbers,
            slot_state=state,
            slot_reasons=reasons,
            histograms=histograms,
            histogram_state=histogram_state,
            histogram_reasons=histogram_reasons,
            warnings=tuple(warnings),
        )

    def _why_invalid(self, n: int, raw: float) -> str:
        slot = self._plan.slots[n]
        if raw in self._plan.product.sentinels:
            return f"{slot.family.name} is {raw:.0f}, which means no value"
        return f"{slot.family.name} is {raw:g}, expected {slot.signal.low:g} to {slot.signal.high:g}"

    def _read_histograms(
        self, values: FloatArray, warnings: list[str]
    ) -> tuple[list[Histogram | None], StateArray, dict[int, str]]:
        buckets = self._plan.buckets
        state = np.zeros(len(buckets), dtype=np.uint8)
        reasons: dict[int, str] = {}
        if not buckets:
            return [], state, reasons
        counts = values[self._counts]
        sums = values[self._sums] * self._sum_scale
        for n in self._falling(counts):
            state[n] = SignalState.INVALID
            reasons[n] = f"{buckets[n].family.name} has buckets that fall or are no counts"
        for n in np.flatnonzero(~np.isfinite(sums)).tolist():
            state[n] = SignalState.INVALID
            reasons[n] = f"{buckets[n].family.name}_sum is {sums[n]:g}"
        for n, last, count in self._checked:
            if values[last] != values[count] and n not in reasons:
                state[n] = SignalState.CONFLICT
                reasons[n] = f"{buckets[n].family.name} has count {values[count]:g} but +Inf bucket {values[last]:g}"
        for n, first, other in self._bucket_twins:
            conflict = _conflict(values[first], values[other])
            if conflict is not None:
                state[n] = SignalState.CONFLICT
                reasons[n] = conflict
                warnings.append(f"{buckets[n].family.name}: {conflict}")
        for n, broken in self._broken:
            state[n] = SignalState.INVALID
            reasons[n] = broken
        edges, totals = self._edges, sums.tolist()
        histograms: list[Histogram | None] = [
            Histogram(part.bounds, counts[edges[n] : edges[n + 1]], totals[n]) for n, part in enumerate(buckets)
        ]
        for n in reasons:
            histograms[n] = None
        return histograms, state, reasons

    def _falling(self, counts: FloatArray) -> list[int]:
        """Parts whose cumulative buckets fall, or hold what is no count."""
        wrong: NDArray[np.bool_] = ~(counts >= 0) | np.isinf(counts)
        wrong[1:] |= (np.diff(counts) < 0) & self._within
        return np.unique(self._owner[wrong]).tolist() if wrong.any() else []


def _conflict(first: float, other: float) -> str | None:
    """What to say of two values of one series; None when they agree."""
    if first == other or (isnan(first) and isnan(other)):
        return None
    return f"conflicting duplicates {first:g} vs {other:g}"
