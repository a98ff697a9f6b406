"""Dynamo's performance model of an engine that prefills and decodes in the same steps, learnt while it runs.

components/src/dynamo/planner/core/perf_model/{base,agg}.py: the time of a forward pass is linear in its prefill
tokens and in the KV tokens of its decodes. Samples are kept spread over the operating range: when there are too many,
the fullest cell of a grid loses its oldest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MAX_SAMPLES, MIN_SAMPLES, CELLS_PER_AXIS = 64, 5, 4


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass, or the mean of several: tokens of prefill computed, KV tokens decoded over, seconds."""

    prefill_tokens: float
    decode_kv: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """An engine's options and the pool's typical lengths where the planner cannot see better."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_kv_tokens: int


@dataclass(frozen=True, slots=True)
class Rps:
    """The best request rate of an engine and the latencies there; the targets may be out of reach (see planner)."""

    rps: float
    ttft_s: float
    itl_s: float


class _Average:
    """Of the last 64 values; zeros before the first other value are idleness and left out."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=MAX_SAMPLES)

    def add(self, value: float) -> None:
        if value or self._values:
            self._values.append(value)

    @property
    def value(self) -> float:
        return sum(self._values) / len(self._values) if self._values else 0.0


class AggregatedModel:
    """Wall time = intercept + a x prefill tokens + b x decode KV tokens, by least squares.

    `benchmark`: passes measured before deployment.
    """

    def __init__(self, limits: Limits, benchmark: Iterable[Pass] = ()) -> None:
        self.limits = limits
        self._samples = list(benchmark)
        self._fit: tuple[float, float, float] | None = None
        self._stale = True
        self.prompt_tokens = _Average()
        self.decode_length = _Average()
        self.prefill_tokens = _Average()

    def observe(self, sample: Pass) -> None:
        self.prefill_tokens.add(sample.prefill_tokens)
        self._samples.append(sample)
        if len(self._samples) > MAX_SAMPLES:
            self._retire()
        self._stale = True

    @property
    def ready(self) -> bool:
        """Whether there is a fit: enough samples, and more prefill does not take less time."""
        return self._fitted() is not None

    def wall_s(self, prefill_tokens: float, decode_kv: float) -> float | None:
        fit = self._fitted()
        return None if fit is None else max(1e-6, fit[0] + fit[1] * prefill_tokens + fit[2] * decode_kv)

    def ttft_s(self, queued_tokens: float, decode_kv: float, hit_rate: float) -> float | None:
        """Of a next request behind `queued_tokens` of prefill, chunked, with the decodes of now in every chunk."""
        budget = self.limits.max_num_batched_tokens
        tokens = (queued_tokens + self.prompt_tokens.value) * (1 - hit_rate)
        chunks = math.floor(tokens / budget)
        full, last = self.wall_s(budget, decode_kv), self.wall_s(tokens - chunks * budget, decode_kv)
        if full is None or last is None:
            return None
        return chunks * full + (last if tokens > chunks * budget else 0.0)

    def itl_s(self, decode_kv: float) -> float | None:
        """Of a next request that decodes among `decode_kv` tokens with the usual prefill beside it."""
        return self.wall_s(self.prefill_tokens.value, decode_kv + self.decode_length.value)

    def best_rps(self, isl: float, osl: float, ttft_s: float, itl_s: float, hit_rate: float) -> Rps | None:
        """The largest batch within both targets, by Little's law: batch / (output length x step). None: no fit.

        The batch is bounded by the KV cache, by max_num_seqs and by the balance of prefill and decode. Where even
        one request breaks a target, that one's rate is the answer.
        """
        if isl <= 0 or osl <= 0:
            return None
        budget, context = self.limits.max_num_batched_tokens, isl + osl / 2
        cap = min(int(self.limits.max_kv_tokens / context), self.limits.max_num_seqs, budget - 1)
        most = max(1, min(cap, math.floor(budget - isl / osl)))
        best: Rps | None = None
        for batch in range(1, most + 1):
            kv = batch * context
            prefill = min(batch * isl * (1 - hit_rate) / max(1.0, osl), budget)
            wall, first = self.wall_s(prefill, kv), self.ttft_s(prefill, kv, 0.0)
            if wall is None or first is None:
                return None
            reached = Rps(batch / (osl * wall), first, wall)
            if wall > itl_s or first > ttft_s:
                return best or reached
            best = reached
        return best

    def _fitted(self) -> tuple[float, float, float] | None:
        if self._stale:
            self._stale = False
            self._fit = _least_squares(self._samples)
        return self._fit

    def _retire(self) -> None:
        lows = [min(s.prefill_tokens for s in self._samples), min(s.decode_kv for s in self._samples)]
        highs = [max(s.prefill_tokens for s in self._samples), max(s.decode_kv for s in self._samples)]
        cells: dict[tuple[int, int], list[int]] = {}
        for index, sample in enumerate(self._samples):
            key = (_cell(sample.prefill_tokens, lows[0], highs[0]), _cell(sample.decode_kv, lows[1], highs[1]))
            cells.setdefault(key, []).append(index)
        del self._samples[max(cells.values(), key=len)[0]]


def _cell(value: float, low: float, high: float) -> int:
    return min(int((value - low) / (high - low) * CELLS_PER_AXIS), CELLS_PER_AXIS - 1) if high > low else 0


def _least_squares(samples: Sequence[Pass]) -> tuple[float, float, float] | None:
    """Intercept and slopes. More prefill in less time is no fit; a negative slope of KV, which has little weight beside
    it, counts as 0: so the original treats its weak features.
    """
    if len(samples) < MIN_SAMPLES:
        return None
    x = np.array([(s.prefill_tokens, s.decode_kv) for s in samples])
    y = np.array([s.wall_s for s in samples])
    centre, mean = x.mean(axis=0), float(y.mean())
    slopes, *_ = np.linalg.lstsq(x - centre, y - mean, rcond=None)
    prefill, decode = float(slopes[0]), max(0.0, float(slopes[1]))
    if prefill < 0:
        return None
    return mean - prefill * float(centre[0]) - decode * float(centre[1]), prefill, decode
