"""Which engines are proven idle: up, nothing in them, and their counters flat for a while."""

from __future__ import annotations

import numpy as np

from collector.model import SignalState, Table
from collector.sources.tables import sample_times

_LOAD = ("requests_running", "requests_waiting")
_GAUGES = (*_LOAD, "kv_cache_usage")
_TOKENS = ("prompt_tokens", "generation_tokens")
_FINISHED = "requests_by_finish_reason."


class IdleProof:
    """Remembers since when each endpoint's work counters have not moved.

    Time is the samples' own: values that are carried over from an older scrape prove nothing.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._flat: dict[str, tuple[float, float]] = {}  # endpoint -> work counted, since

    def mark(self, table: Table, at: float) -> None:
        """Turn KNOWN into IDLE in place, for the endpoints where it is proven."""
        counters = [c for c in table.columns if c in _TOKENS or c.startswith(_FINISHED)]
        work = np.nansum([table.column(name) for name in counters], axis=0)
        empty = np.logical_and.reduce([table.column(name) == 0 for name in _LOAD])
        proven = empty & np.isfinite(table.column("generation_tokens"))
        sampled = sample_times(table, "generation_tokens", at)
        before, self._flat = self._flat, {}
        idle = []
        for row in np.flatnonzero(proven):
            name, counted, sample = table.rows[row], float(work[row]), float(sampled[row])
            was, since = before.get(name, (counted, sample))
            since = since if was == counted else sample
            self._flat[name] = (counted, since)
            if sample - since >= self._after_s:
                idle.append(int(row))
        for name in _GAUGES:
            states = table.state[:, table.columns.index(name)]
            states[idle] = np.where(states[idle] == SignalState.KNOWN, SignalState.IDLE, states[idle])
        for histogram_states in table.histogram_state.values():
            known = histogram_states[idle] == SignalState.KNOWN
            histogram_states[idle] = np.where(known, SignalState.IDLE, histogram_states[idle])
