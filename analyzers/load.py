"""Measures the planner steers by: who serves, what waits, what is in flight, mean latencies of the pool."""

from __future__ import annotations

import numpy as np

from analyzers.build import endpoint_scope, measure, pool_scope, window
from analyzers.fleet import known_sum, pool_rows, route_rows, take
from analyzers.model import Context, Measure, Report
from collector.history import History
from collector.model import Frame, Level

PROGRESS_WINDOW_S = 6.0
LATENCY_WINDOW_S = 10.0
LATENCIES = ("ttft", "itl")


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    measures: list[Measure] = []
    for pool in frame.topology.pools:
        measures.extend(_load(history, frame, context, pool))
        for signal in LATENCIES:
            measures.extend(_latency(history, frame, context, pool, signal))
    return Report(measures=tuple(measures))


def _load(history: History, frame: Frame, context: Context, pool: str) -> list[Measure]:
    """`engine_waiting` leaves out engines that make no progress: their queue is no demand (and no spare either)."""
    rows, scope = pool_rows(frame, pool), pool_scope(pool)
    running = frame.endpoints.column("requests_running")[rows]
    waiting = frame.endpoints.column("requests_waiting")[rows]
    tokens = take(history.rate(Level.ENDPOINT, "generation_tokens", window(context, PROGRESS_WINDOW_S)), rows)
    frozen = (running > 0) & (tokens == 0)
    serving = float(np.count_nonzero(np.isfinite(running) & ~frozen))
    routes = route_rows(frame, pool)
    active = known_sum(frame.routes.column("active")[routes])
    pending = known_sum(frame.routes.column("pending")[routes])
    inflight = known_sum(running + waiting)
    if active is not None:
        inflight = active + (pending or 0.0)
    return [
        measure("serving_endpoints", scope, serving if np.isfinite(running).any() else None, "endpoints"),
        measure("engine_waiting", scope, known_sum(waiting[~frozen]), "requests"),
        measure("inflight_total", scope, inflight, "requests"),
    ]


def _latency(history: History, frame: Frame, context: Context, pool: str, signal: str) -> list[Measure]:
    """Mean over the window's observations: per endpoint, and of the pool weighted by observations."""
    span = window(context, LATENCY_WINDOW_S)
    found: list[Measure] = []
    total = count = 0.0
    for name in frame.topology.pools[pool].endpoints:
        delta = history.delta(Level.ENDPOINT, name, signal, span)
        mean = None if delta is None else delta.mean()
        if delta is not None and mean is not None:
            total, count = total + delta.sum, count + delta.count
        found.append(measure(f"{signal}_mean_s", endpoint_scope(name), mean, "s"))
    found.append(measure(f"{signal}_mean_s", pool_scope(pool), total / count if count > 0 else None, "s"))
    return found
