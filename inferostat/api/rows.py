"""The fleet table: one row per endpoint, each cell a number or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actuators.model import Lever, LeverReading
from analyzers.model import ScopeKind
from collector.history import Column, History
from collector.model import Endpoint, Frame, Histogram, Level, TargetRole, TargetStatus
from inferostat.api import cells
from inferostat.api.cells import Document
from inferostat.api.fleet import ReplicaInfo
from inferostat.api.view import CycleView

WINDOW_S = 10.0
WINDOW_CYCLES = 4.0
SHOWN_PERCENTILE = 0.95


@dataclass(frozen=True)
class Recent:
    """The last `window_s` seconds per endpoint, taken at the end of the cycle because the history moves on.

    An endpoint without an entry in a histogram mapping is unknown; `tokens` is the rate of generated tokens.
    """

    ttft: Mapping[str, Histogram]
    itl: Mapping[str, Histogram]
    tokens: Column
    window_s: float


def recent_window(history: History, frame: Frame, interval_s: float) -> Recent:
    """Deltas and rates over a window that holds a few cycles, whatever the interval."""
    window_s = max(WINDOW_S, WINDOW_CYCLES * interval_s)

    def deltas(signal: str) -> dict[str, Histogram]:
        found = {row: history.delta(Level.ENDPOINT, row, signal, window_s) for row in frame.endpoints.rows}
        return {row: histogram for row, histogram in found.items() if histogram is not None}

    tokens = history.rate(Level.ENDPOINT, "generation_tokens", window_s)
    return Recent(deltas("ttft"), deltas("itl"), tokens, window_s)


def endpoint_rows(view: CycleView, recent: Recent) -> list[Document]:
    """Scraped endpoints in the order of the topology, then replicas that nobody scrapes yet."""
    replicas = {replica.address: replica for replica in view.fleet.replicas} if view.fleet else {}
    targets = {target.name: target for target in view.frame.targets if target.role is TargetRole.ENGINE}
    weights = {reading.key.target: reading for reading in view.readings if reading.key.lever is Lever.WEIGHT}
    rows: list[Document] = []
    for name, endpoint in view.frame.topology.endpoints.items():
        replica = replicas.pop(endpoint.address, None)
        rows.append(
            {
                **_identity(endpoint),
                **_state(targets.get(name), replica),
                "cells": _cells(view, endpoint, recent, weights.get(endpoint.address)),
            }
        )
    rows.extend(_unscraped(replica) for replica in replicas.values() if replica.state != "stopped")
    return rows


def _identity(endpoint: Endpoint) -> Document:
    return {
        "name": endpoint.name,
        "address": endpoint.address,
        "pool": endpoint.pool,
        "product": endpoint.product,
        "version": endpoint.version,
        "model": endpoint.model,
        "build": endpoint.build,
    }


def _state(target: TargetStatus | None, replica: ReplicaInfo | None) -> Document:
    """What the fleet says of the replica wins; else what the last scrape gave."""
    error = target.error if target is not None else None
    if replica is not None and replica.state != "ready":
        state = replica.state
    elif target is None or (target.scraped_at is None and target.error is None):
        state = "unknown"
    else:
        state = "serving" if target.up else "unreachable"
    return {"state": state, "error": error, "slowness": replica.g if replica is not None else None}


def _cells(view: CycleView, endpoint: Endpoint, recent: Recent, weight: LeverReading | None) -> Document:
    table = view.frame.endpoints
    return {
        "running": cells.cell(table.cell(endpoint.name, "requests_running"), "requests"),
        "waiting": cells.cell(table.cell(endpoint.name, "requests_waiting"), "requests"),
        "kv": cells.cell(table.cell(endpoint.name, "kv_cache_usage"), "ratio"),
        "ttft_p95": _percentile(recent.ttft.get(endpoint.name), recent.window_s),
        "itl_mean": _mean(recent.itl.get(endpoint.name), recent.window_s),
        "tokens": cells.cell(recent.tokens.cell(endpoint.name), "tokens/s"),
        "weight": _weight(weight),
        "hbm_compute_ratio": cells.measure(
            view.measure("hbm_compute_ratio", ScopeKind.ENDPOINT, endpoint.name), "ratio"
        ),
    }


def _percentile(histogram: Histogram | None, window_s: float) -> Document:
    if histogram is None:
        return cells.unknown("too few samples, or the counter was reset", "unknown(warming)", "s")
    found = histogram.quantile(SHOWN_PERCENTILE)
    if found is None:
        return cells.unknown(f"no request in the last {window_s:g} s", "idle", "s")
    return cells.quantile(found)


def _mean(histogram: Histogram | None, window_s: float) -> Document:
    if histogram is None:
        return cells.unknown("too few samples, or the counter was reset", "unknown(warming)", "s")
    mean = histogram.mean()
    if mean is None:
        return cells.unknown(f"no token in the last {window_s:g} s", "idle", "s")
    return cells.known(mean, "s")


def _weight(reading: LeverReading | None) -> Document:
    if reading is None:
        return cells.unknown("no gateway backend reads it", "unknown(never_seen)")
    if not reading.known:
        return cells.unknown(reading.reason or "the gateway could not be read")
    if reading.value is None:
        return {"value": None, "state": "known", "unit": "", "reason": "the gateway's default"}
    return cells.known(reading.value)


def _unscraped(replica: ReplicaInfo) -> Document:
    """A replica that exists (and costs) but is not among the targets yet, or no longer."""
    missing = cells.unknown("not scraped in this state", "unknown(never_seen)")
    names = ("running", "waiting", "kv", "ttft_p95", "itl_mean", "tokens", "weight", "hbm_compute_ratio")
    return {
        "name": replica.name,
        "address": replica.address,
        "pool": None,
        "product": None,
        "version": None,
        "model": None,
        "build": replica.build,
        "state": replica.state,
        "error": None,
        "slowness": replica.g,
        "cells": dict.fromkeys(names, missing),
    }
