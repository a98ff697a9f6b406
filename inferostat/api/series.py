"""The last minutes of a pool's main numbers, for the charts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from inferostat.api.cells import Document, number

KEPT_POINTS = 900
FIELDS = (
    "offered_rate",
    "attempts_rate",
    "goodput_rate",
    "capacity_mu",
    "amplification",
    "vulnerability",
    "ttft_p95_s",
    "itl_mean_s",
    "queue_wait_s",
    "running",
    "waiting",
    "reporting",
    "active",
    "breaker",
    "admission",
    "retry_budget",
    "success_per_dollar",
)


class SeriesRing:
    """Points of every pool, oldest first; an unknown number is None and shows as a gap."""

    def __init__(self, kept: int = KEPT_POINTS) -> None:
        self._kept = kept
        self._points: dict[str, deque[tuple[float, ...]]] = {}

    def append(self, pool: str, at: float, values: Mapping[str, float | None]) -> None:
        """`values`: a subset of FIELDS; what is left out is unknown."""
        ring = self._points.setdefault(pool, deque(maxlen=self._kept))
        nan = float("nan")
        ring.append((at, *(nan if (value := values.get(name)) is None else value for name in FIELDS)))

    def keep_only(self, pools: Iterable[str]) -> None:
        """Forget pools that are gone."""
        for pool in self._points.keys() - set(pools):
            del self._points[pool]

    def document(self, since: float | None = None) -> Document:
        """pool -> {"at": [...], field: [...]} of the points after `since` (unix s)."""
        return {pool: _columns(ring, since) for pool, ring in self._points.items()}


def _columns(ring: Iterable[tuple[float, ...]], since: float | None) -> Document:
    points = [point for point in ring if since is None or point[0] > since]
    columns: Document = {"at": [point[0] for point in points]}
    for index, name in enumerate(FIELDS, start=1):
        columns[name] = [number(round(point[index], 6)) for point in points]
    return columns
