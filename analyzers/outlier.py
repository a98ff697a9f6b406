"""Endpoints that are slower or fail more than their peers, and pools whose load is shared out badly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.build import Memory, endpoint_scope, finding, pool_scope, window
from analyzers.capacity import Capacity, measure_capacity, queue_wait
from analyzers.fleet import take
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Optimisation, Report, Severity
from collector.history import History
from collector.model import FloatArray, Frame, Level

MIN_PEERS = 3
Z_LIMIT = 3.5
EFFECT = 0.2
MIN_SAMPLES = 20.0
LARGE_POOL = 32
SHORT_WINDOW_S = 15.0
LONG_WINDOW_S = 45.0

_ADVICE = (
    Advice("weight", Optimisation.MOVE, "Lower its weight, step by step, within the ejection cap"),
    Advice("drain", Optimisation.MOVE, "Drain it and look at its device when the weight does not help"),
)


@dataclass(frozen=True, slots=True)
class Trait:
    """What endpoints are compared by: `floor` the least scale, `least` the least difference that matters."""

    name: str
    unit: str
    layer: Layer
    higher_is_worse: bool
    floor: float
    least: float
    relative: bool


TRAITS = (
    Trait("itl_mean", "s", Layer.DECODE, True, 0.05, 0.002, True),
    Trait("ttft_mean", "s", Layer.PREFILL, True, 0.15, 0.05, True),
    Trait("queue_wait_s", "s", Layer.QUEUE, True, 0.25, 0.5, True),
    Trait("tokens_per_running_request", "tokens/s", Layer.DECODE, False, 0.05, 0.5, True),
    Trait("error_share", "ratio", Layer.UNKNOWN, True, 0.02, 0.05, False),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    memory = Memory(context)
    findings: list[Finding] = []
    for pool in frame.topology.pools:
        capacity = measure_capacity(history, frame, context, pool, memory)
        findings.extend(_outliers(history, context, capacity, now))
        imbalance = _imbalance(history, context, capacity, now)
        if imbalance is not None:
            findings.append(imbalance)
    return Report(tuple(findings))


def _traits(history: History, capacity: Capacity, span: float) -> dict[str, FloatArray]:
    running = take(history.mean(Level.ENDPOINT, "requests_running", span), capacity.rows)
    tokens = take(history.rate(Level.ENDPOINT, "generation_tokens", span), capacity.rows)
    sent = take(history.increase(Level.ENDPOINT, "gateway_attempts", span), capacity.rows)
    errors = take(history.increase(Level.ENDPOINT, "gateway_errors", span), capacity.rows)
    waited = take(history.minimum(Level.ENDPOINT, "requests_waiting", span), capacity.rows)
    busy = running >= 1
    return {
        # In a large pool tokens per running request says the same at no cost a row.
        "itl_mean": _means(history, capacity, "itl", span)
        if len(capacity.names) <= LARGE_POOL
        else np.full(len(capacity.names), np.nan),
        # Where requests wait, TTFT is the queue's and says nothing of the engine.
        "ttft_mean": np.where(capacity.waiting == 0, _means(history, capacity, "ttft", span), np.nan),
        # Queues come and go at random: only what waited through the whole window counts.
        "queue_wait_s": queue_wait(waited, capacity.mu, capacity.throughput),
        "tokens_per_running_request": np.where(busy, tokens / np.where(busy, running, 1.0), np.nan),
        "error_share": np.where(sent >= MIN_SAMPLES, errors / np.where(sent > 0, sent, 1.0), np.nan),
    }


def _means(history: History, capacity: Capacity, signal: str, span: float) -> FloatArray:
    """Mean of a histogram's observations per endpoint; NaN below the least volume."""
    seen = history.counted(Level.ENDPOINT, signal, span)
    count, total = seen.count[capacity.rows], seen.sum[capacity.rows]
    enough = count >= MIN_SAMPLES
    return np.where(enough, total / np.where(enough, count, 1.0), np.nan)


def peer_scores(values: FloatArray, trait: Trait) -> tuple[FloatArray, FloatArray]:
    """(z, median of the peers) of each value against all others: leave-one-out median and MAD, with a floor.

    z is positive when worse. NaN where the value or all but two of its peers are unknown.
    """
    known = np.flatnonzero(np.isfinite(values))
    z, middle = np.full(values.size, np.nan), np.full(values.size, np.nan)
    if known.size < MIN_PEERS + 1:
        return z, middle
    present = values[known]
    if known.size > LARGE_POOL:  # one value among many moves neither median nor MAD
        median = np.full(known.size, np.median(present))
        mad = np.full(known.size, 1.4826 * np.median(np.abs(present - median)))
    else:
        alone = ~np.eye(known.size, dtype=bool)
        others = np.broadcast_to(present, alone.shape)[alone].reshape(known.size, -1)
        median = np.median(others, axis=1)
        mad = 1.4826 * np.median(np.abs(others - median[:, None]), axis=1)
    floor = trait.floor * np.abs(median) if trait.relative else np.full_like(median, trait.floor)
    difference = (present - median) if trait.higher_is_worse else (median - present)
    matters = difference >= np.maximum(trait.least, EFFECT * np.abs(median) if trait.relative else 0.0)
    scale = np.maximum(np.maximum(mad, floor), 1e-12)
    z[known] = np.where(matters, difference / scale, np.minimum(difference / scale, 0.0))
    middle[known] = median
    return z, middle


def _settled(history: History, name: str, context: Context, now: float) -> bool:
    """Whether an endpoint has been read for both windows, or for as long as its peers.

    A replica that has just joined gets a herd of prompts at once and has nothing in its caches: it is slow for a while.
    """
    asked = LONG_WINDOW_S + SHORT_WINDOW_S
    times = history.samples(Level.ENDPOINT, name, "requests_running", asked).times
    slack = 2 * context.interval_s
    return times.size > 0 and now - float(times[0]) >= min(asked, history.span_s()) - slack


def _outliers(history: History, context: Context, capacity: Capacity, now: float) -> list[Finding]:
    short = _traits(history, capacity, window(context, SHORT_WINDOW_S))
    quick = {trait.name: peer_scores(short[trait.name], trait) for trait in TRAITS}
    if not any((z >= Z_LIMIT).any() for z, _ in quick.values()):
        return []
    long = _traits(history, capacity, window(context, LONG_WINDOW_S))
    worst: dict[int, list[tuple[float, Trait, float, float]]] = {}
    for trait in TRAITS:
        z, median = quick[trait.name]
        slow, _ = peer_scores(long[trait.name], trait)
        for number in np.flatnonzero((z >= Z_LIMIT) & (slow >= Z_LIMIT)):
            score = float(min(z[number], slow[number]))
            seen = float(short[trait.name][number])
            worst.setdefault(int(number), []).append((score, trait, seen, float(median[number])))
    worst = {
        number: found for number, found in worst.items() if _settled(history, capacity.names[number], context, now)
    }
    # Peers are the yardstick: when a third of them is off there is none, and it is no outlier but the pool.
    if len(worst) > max(1, len(capacity.names) // 3):
        return []
    # While the long window holds no more than the short one, it confirms nothing.
    confirmed = history.span_s() >= 2 * window(context, SHORT_WINDOW_S)
    return [_outlier(context, capacity, number, traits, now, confirmed) for number, traits in sorted(worst.items())]


def _outlier(
    context: Context,
    capacity: Capacity,
    number: int,
    traits: list[tuple[float, Trait, float, float]],
    now: float,
    confirmed: bool,
) -> Finding:
    traits = sorted(traits, key=lambda entry: -entry[0])
    name = capacity.names[number]
    _, first, value, median = traits[0]
    evidence = [
        Evidence(
            trait.name,
            seen,
            peers,
            f"{min(score, 99):.1f} robust standard deviations worse than its peers",
            trait.unit,
        )
        for score, trait, seen, peers in traits
    ]
    return finding(
        "endpoint-outlier",
        endpoint_scope(name),
        context,
        now,
        severity=Severity.WARNING,
        confidence=min(0.95, 0.7 + 0.1 * len(traits)) if confirmed else 0.5,
        summary=f"{name} is worse than its peers: {first.name} {value:.3g} against {median:.3g} {first.unit}",
        layer=first.layer,
        evidence=evidence,
        advice=_ADVICE,
        pool=capacity.pool,
    )


def _imbalance(history: History, context: Context, capacity: Capacity, now: float) -> Finding | None:
    """Requests wait on some endpoints while others have had room: routing, not capacity."""
    span = window(context, 0.0, samples=3)
    most = take(history.maximum(Level.ENDPOINT, "requests_running", span), capacity.rows)
    most_waiting = take(history.maximum(Level.ENDPOINT, "requests_waiting", span), capacity.rows)
    limit = capacity.batch_limit[np.isfinite(capacity.batch_limit)]
    if limit.size == 0 or capacity.progressing.sum() < 2:
        return None
    full = np.median(limit)
    room = (most_waiting == 0) & (most < 0.7 * full) & capacity.progressing
    crowded = (capacity.sustained > 0) & (capacity.sustained_wait_s > 0.5) & capacity.progressing
    if not room.any() or not crowded.any():
        return None
    held = capacity.running + capacity.waiting
    spread = float(np.nanstd(held) / max(float(np.nanmean(held)), 1e-9))
    if spread < 0.5:
        return None
    busiest = capacity.names[int(np.nanargmax(capacity.waiting))]
    return finding(
        "replica-imbalance",
        pool_scope(capacity.pool),
        context,
        now,
        severity=Severity.WARNING,
        confidence=0.8,
        layer=Layer.ROUTER,
        pool=capacity.pool,
        summary=(
            f"Requests wait on {int(crowded.sum())} endpoints of pool {capacity.pool} "
            f"({busiest} most) while {int(room.sum())} have room"
        ),
        evidence=[
            Evidence("requests_waiting", float(np.nanmax(capacity.waiting)), 0.0, f"on {busiest}", "requests"),
            Evidence(
                "load_variation",
                spread,
                0.5,
                "coefficient of variation of running and waiting requests",
                "ratio",
            ),
        ],
        advice=(Advice("weight", Optimisation.MOVE, "Move weight to the endpoints with room"),),
    )
