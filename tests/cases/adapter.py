"""Turns the columns of a time-series case into frames, and nothing else: rates are added up to totals."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from collector.model import Frame, Histogram, SignalState
from tests.analyzers.frames import Row, frame, target, topology

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
FINE = np.append(np.arange(1, 101) * 0.05, np.inf)
Cells = dict[str, float]


def ticks(name: str) -> Iterator[tuple[float, float, Cells]]:
    """(time, seconds since the tick before, the columns that have a number)."""
    before: float | None = None
    with (CASES / name).open(newline="") as file:
        for line in csv.DictReader(file):
            at = float(line["t"])
            cells = {key: float(value) for key, value in line.items() if value and key != "t"}
            yield at, at - before if before is not None else 0.0, cells
            before = at


class Totals:
    """Counters made of rates: a rate stands for the time since the tick before."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts = np.zeros(FINE.size)
        self._sum = 0.0

    def add(self, name: str, rate: float, seconds: float) -> float:
        self._sums[name] = self._sums.get(name, 0.0) + rate * seconds
        return self._sums[name]

    def observe(self, value: float, times: float) -> None:
        self._counts[value <= FINE] += times
        self._sum += value * times

    def observed(self) -> Histogram:
        return Histogram(FINE, self._counts.copy(), self._sum)


def frames(name: str, row: Callable[[Totals, Cells, float], tuple[Row, Row]]) -> Iterator[Frame]:
    """One endpoint `ep` and, where `row` gives one, a route `llm`."""
    totals = Totals()
    for at, seconds, cells in ticks(name):
        endpoint, route = row(totals, cells, seconds)
        where = topology(("ep",), routes=("llm",) if route else ())
        up = cells.get("scrape_ok", 1.0) == 1.0
        yield frame(
            at,
            {"ep": endpoint},
            routes={"llm": route} if route else None,
            where=where,
            targets=(target("ep", up=up, scraped_at=at),),
        )


def engine(totals: Totals, cells: Cells, seconds: float) -> tuple[Row, Row]:
    """C25 and C26: an engine's own metrics with the gateway's arrivals beside them."""
    row: dict[str, float] = {
        "requests_running": cells["running"],
        "requests_waiting": cells["waiting"],
        "kv_cache_usage": cells["kv_usage"],
        "generation_tokens": cells["generation_tokens_total"],
        "gateway_attempts": totals.add("arrived", cells["gateway_rps"], seconds),
    }
    if "gateway_timeouts_total" in cells:
        row["gateway_timeouts"] = cells["gateway_timeouts_total"]
    return row, {}


def storm(totals: Totals, cells: Cells, seconds: float) -> tuple[Row, Row]:
    """C44: what the gateway counts, and the queue."""
    attempts = totals.add("attempts", cells["attempts_rps"], seconds)
    route: dict[str, float] = {
        "arrivals": attempts,
        "attempts": attempts,
        "first_sent": totals.add("offered", cells["offered_rps"], seconds),
        "retry_sent": totals.add("retries", cells["attempts_rps"] - cells["offered_rps"], seconds),
        "upstream_2xx": totals.add("success", cells["success_rps"], seconds),
        "upstream_5xx": totals.add("failed", cells["failed_attempts_rps"], seconds),
        "overflow": 0.0,
    }
    return {"requests_waiting": cells["waiting"], "gateway_attempts": attempts}, route


def exit_side(totals: Totals, cells: Cells, seconds: float) -> tuple[Row, Row]:
    """C49: finished requests, the batch and the queue; every TTFT of a tick is taken to be its p95."""
    done = totals.add("done", cells["completed_rps"], seconds)
    totals.observe(cells["ttft_p95_s"], cells["completed_rps"] * seconds)
    row: Row = {
        "ttft": totals.observed(),
        "requests_running": cells["running"],
        "requests_waiting": cells["waiting"],
        "requests_by_finish_reason.stop": done,
    }
    return row, {}


def counter(totals: Totals, cells: Cells, seconds: float) -> tuple[Row, Row]:
    """C29: one counter, answered by another worker each time."""
    return {"generation_tokens": cells["vllm:generation_tokens_total"]}, {}


def device_frames(name: str) -> Iterator[Frame]:
    """C28: one GPU with the sticky code and the exporter's windowed count."""
    for at, _, cells in ticks(name):
        row = {
            "xid": cells["DCGM_FI_DEV_XID_ERRORS"],
            "xid_window_count": cells["DCGM_EXP_XID_ERRORS_COUNT_xid31_window300s"],
            "gpu_util": cells["DCGM_FI_DEV_GPU_UTIL"] / 100,
        }
        where = topology(("ep",), devices={"gpu0": "ep"})
        yield frame(at, {"ep": {"requests_running": 1.0}}, devices={"gpu0": row}, where=where)


def inflight(totals: Totals, cells: Cells, seconds: float) -> tuple[Row, Row]:
    """C39 and C40: requests in flight at the gateway, some of them waiting there."""
    waiting = cells.get("gateway_waiting", 0.0)
    return {}, {"active": cells["inflight_total"] - waiting, "pending": waiting}


def aged_frames(name: str) -> Iterator[Frame]:
    """C43: three endpoints whose samples have an age; older than a minute is stale."""
    by_time: dict[float, dict[str, Cells]] = {}
    with (CASES / name).open(newline="") as file:
        for line in csv.DictReader(file):
            cells = {key: float(value) for key, value in line.items() if key not in ("t", "endpoint")}
            by_time.setdefault(float(line["t"]), {})[line["endpoint"]] = cells
    for at, endpoints in by_time.items():
        made = frame(
            at,
            {
                name: {
                    "requests_waiting": SignalState.STALE if cells["sample_age_s"] >= 60 else cells["waiting"],
                    "requests_running": SignalState.STALE if cells["sample_age_s"] >= 60 else 1.0,
                    "kv_cache_usage": SignalState.STALE if cells["sample_age_s"] >= 60 else cells["kv_usage"],
                }
                for name, cells in endpoints.items()
            },
            targets=tuple(target(name, scraped_at=at - cells["sample_age_s"]) for name, cells in endpoints.items()),
        )
        yield made
