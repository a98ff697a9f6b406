"""Bucketed series of one group of endpoints: mean latency and what else could explain it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.history import History
from collector.model import FloatArray, Level

# A mean over a sample of the group's endpoints serves as well as over all, and bounds the cost of a cycle.
SAMPLED_ENDPOINTS = 8
MAX_BUCKETS = 60
MIN_TOKENS, MIN_REQUESTS = 50.0, 4.0
# Above this share of queueing, a bucket's TTFT speaks of demand and not of the engine.
QUEUE_SHARE = 0.25
CONFOUNDERS = ("computed_prompt_tokens_per_request", "request_rate", "cached_share")


@dataclass(frozen=True)
class LatencySeries:
    """times (N,): buckets' ends. latency (N,): log of the mean in seconds. confounders (N, 3) in the order of
    CONFOUNDERS: log tokens, log requests/s of an endpoint, share. NaN where a bucket has too little volume.
    """

    signal: str
    times: FloatArray
    latency: FloatArray
    confounders: FloatArray


def sampled(names: tuple[str, ...]) -> tuple[str, ...]:
    step = max(1, -(-len(names) // SAMPLED_ENDPOINTS))
    return names[::step]


def latency_series(history: History, names: tuple[str, ...], signal: str, bucket_s: float) -> LatencySeries:
    """The group's series over what history holds, oldest first; empty below two buckets."""
    latest = history.latest
    buckets = min(MAX_BUCKETS, int(history.span_s() / bucket_s))
    if latest is None or buckets < 2:
        return LatencySeries(signal, np.empty(0), np.empty(0), np.empty((0, len(CONFOUNDERS))))
    chosen = sampled(names)
    ends: FloatArray = latest.at - bucket_s * np.arange(buckets - 1, -1, -1, dtype=np.float64)
    least = MIN_TOKENS if signal == "itl" else MIN_REQUESTS
    latency = np.array([_log_mean(history, chosen, signal, bucket_s, latest.at - end, least=least) for end in ends])
    if signal == "ttft":
        queue = np.array([_mean(history, chosen, "queue_time", bucket_s, latest.at - end, least=1.0) for end in ends])
        latency[queue > QUEUE_SHARE * np.exp(latency)] = np.nan
    return LatencySeries(signal, ends, latency, _confounders(history, chosen, ends, bucket_s))


def _mean(history: History, names: tuple[str, ...], signal: str, span: float, ending: float, *, least: float) -> float:
    count, total = history.counted(Level.ENDPOINT, signal, span, ending).total(names)
    return total / count if count >= least else float("nan")


def _log_mean(
    history: History, names: tuple[str, ...], signal: str, span: float, ending: float, *, least: float
) -> float:
    mean = _mean(history, names, signal, span, ending, least=least)
    return float(np.log(mean)) if mean > 0 else float("nan")


def _confounders(history: History, names: tuple[str, ...], ends: FloatArray, bucket_s: float) -> FloatArray:
    prompt = _growth(history, names, "prompt_tokens", ends, bucket_s)
    cached = _growth(history, names, "cached_prompt_tokens", ends, bucket_s)
    if not np.isfinite(cached).any():  # engines before that counter tell the hits of the prefix cache
        cached = _growth(history, names, "prefix_hits", ends, bucket_s)
    reused = np.where(np.isfinite(cached), cached, 0.0)
    requests = _growth(history, names, "ttft", ends, bucket_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = (
            np.log((prompt - reused) / requests),
            np.log(requests / (bucket_s * len(names))),
            reused / prompt,
        )
    table = np.stack(columns, axis=1)
    return np.where(np.isfinite(table), table, np.nan)


def _growth(history: History, names: tuple[str, ...], signal: str, ends: FloatArray, bucket_s: float) -> FloatArray:
    """Increase of a counter or a histogram's count in each bucket, over all names; NaN where unknown."""
    edges = np.concatenate([[ends[0] - bucket_s], ends])
    span = float(ends[-1] - edges[0]) + bucket_s
    total, seen = np.zeros(ends.size), np.zeros(ends.size, dtype=np.bool_)
    for name in names:
        samples = history.samples(Level.ENDPOINT, name, signal, span)
        if samples.times.size < 2:
            continue
        at = np.searchsorted(samples.times, edges + 1e-6, side="right") - 1
        step = np.diff(np.where(at >= 0, samples.values[np.maximum(at, 0)], np.nan))
        known = np.isfinite(step) & (step >= 0)
        total[known] += step[known]
        seen |= known
    return np.where(seen, total, np.nan)
