"""A pool in numbers: what the analyzers measured, what is limited, and one point of its charts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from actuators.model import Lever, LeverReading
from analyzers.model import PoolSettings, ScopeKind
from collector.model import Histogram
from inferostat.api import cells
from inferostat.api.cells import Document
from inferostat.api.rows import SHOWN_PERCENTILE, Recent
from inferostat.api.view import CycleView

# measure -> unit, in the order the page shows them
NUMBERS = {
    "offered_rate": "requests/s",
    "attempts_rate": "requests/s",
    "goodput_rate": "requests/s",
    "amplification": "ratio",
    "vulnerability": "ratio",
    "capacity_mu": "requests/s",
    "queue_wait_s": "s",
    "time_to_timeout_s": "s",
    "fail_share": "ratio",
    "success_per_dollar": "successes/USD",
    "hbm_compute_ratio": "ratio",
}
POOL_LEVERS = (Lever.SCALE, Lever.ADMISSION, Lever.RETRY_BUDGET, Lever.BREAKER)


def pool_documents(view: CycleView) -> list[Document]:
    """Every pool of the topology with its numbers and the state of its levers."""
    return [
        {
            "name": pool,
            "endpoints": list(view.frame.topology.pools[pool].endpoints),
            "numbers": {
                name: cells.measure(view.measure(name, ScopeKind.POOL, pool), unit) for name, unit in NUMBERS.items()
            },
            "levers": [reading_document(reading) for reading in view.readings if _is_pools(reading, pool)],
            "slo": _slo(view.settings.get(pool)),
        }
        for pool in view.frame.topology.pools
    ]


def reading_document(reading: LeverReading) -> Document:
    """A lever as read back. `value` None with `known` true: it sets no limit now."""
    return {
        "lever": reading.key.lever.value,
        "target": reading.key.target,
        "pool": reading.key.pool,
        "known": reading.known,
        "value": cells.number(reading.value),
        "ready": reading.ready,
        "reason": reading.reason,
        "owner": reading.owner,
    }


def pool_point(view: CycleView, pool: str, recent: Recent) -> dict[str, float | None]:
    """One point of the pool's charts; what is not known is None."""
    names = view.frame.topology.pools[pool].endpoints
    running, waiting = (_column(view, names, f"requests_{kind}") for kind in ("running", "waiting"))
    limits = {reading.key.lever: reading.value for reading in view.readings if _is_pools(reading, pool)}
    ttft = _merged(recent.ttft[name] for name in names if name in recent.ttft)
    itl = _merged(recent.itl[name] for name in names if name in recent.itl)
    percentile = ttft.quantile(SHOWN_PERCENTILE) if ttft is not None else None
    point: dict[str, float | None] = {
        name: measure.known if (measure := view.measure(name, ScopeKind.POOL, pool)) is not None else None
        for name in NUMBERS
    }
    point.update(
        ttft_p95_s=percentile.value if percentile is not None else None,
        itl_mean_s=itl.mean() if itl is not None else None,
        running=_total(running),
        waiting=_total(waiting),
        reporting=float(np.count_nonzero(~np.isnan(running))),
        active=_total(_routes(view, pool, "active")),
        breaker=limits.get(Lever.BREAKER),
        admission=limits.get(Lever.ADMISSION),
        retry_budget=limits.get(Lever.RETRY_BUDGET),
    )
    return point


def _is_pools(reading: LeverReading, pool: str) -> bool:
    return reading.key.pool == pool and reading.key.lever in POOL_LEVERS


def _slo(settings: PoolSettings | None) -> Document | None:
    if settings is None:
        return None
    return {
        "ttft_s": settings.slo.ttft_s,
        "tpot_s": settings.slo.tpot_s,
        "client_timeout_s": settings.client.timeout_s,
    }


def _column(view: CycleView, names: Iterable[str], signal: str) -> np.ndarray:
    table = view.frame.endpoints
    column = dict(zip(table.rows, table.column(signal), strict=True))
    return np.array([column.get(name, np.nan) for name in names], dtype=np.float64)


def _routes(view: CycleView, pool: str, signal: str) -> np.ndarray:
    table = view.frame.routes
    wanted = set(view.frame.topology.pool_routes(pool))
    return np.array(
        [value for row, value in zip(table.rows, table.column(signal), strict=True) if row in wanted],
        dtype=np.float64,
    )


def _total(values: np.ndarray) -> float | None:
    """Sum of what is known; None when nothing is. The chart says how many endpoints report."""
    present = values[~np.isnan(values)]
    return float(present.sum()) if present.size else None


def _merged(histograms: Iterable[Histogram]) -> Histogram | None:
    """One histogram of all endpoints; other buckets than the first's cannot be merged: left out."""
    merged: Histogram | None = None
    for histogram in histograms:
        merged = histogram if merged is None else (merged.plus(histogram) or merged)
    return merged
