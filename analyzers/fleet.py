"""Rows of a frame by pool, and sums that do not take a missing value for zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collector.history import Column
from collector.model import FloatArray, Frame, SignalState, Table

IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

# A pool's sum stands when at least this share of its rows is known; below, the sum is unknown.
COVERAGE = 0.5
_IDLE = int(SignalState.IDLE)


def indexes(table: Table, names: tuple[str, ...]) -> IntArray:
    """Row numbers of `names` that the table has, in the order of `names`."""
    where = {row: number for number, row in enumerate(table.rows)}
    return np.array([where[name] for name in names if name in where], dtype=np.intp)


def pool_rows(frame: Frame, pool: str) -> IntArray:
    return indexes(frame.endpoints, frame.topology.pools[pool].endpoints)


def route_rows(frame: Frame, pool: str) -> IntArray:
    return indexes(frame.routes, frame.topology.pool_routes(pool))


def take(column: Column, rows: IntArray) -> FloatArray:
    """Values of the rows, NaN where not usable."""
    value = np.where(column.state <= _IDLE, column.value, np.nan)
    return np.asarray(value[rows], dtype=np.float64)


def known_sum(values: FloatArray, coverage: float = COVERAGE) -> float | None:
    """Sum over the known values; None when too few are known for the sum to stand for all."""
    known = np.isfinite(values)
    if values.size == 0 or known.sum() == 0 or known.sum() < coverage * values.size:
        return None
    return float(values[known].sum())


def divide(numerator: float | None, denominator: float | None) -> float | None:
    """Ratio of two numbers that may be unknown; None too when the denominator is not positive."""
    if numerator is None or denominator is None or denominator <= 0:
        return None
    return numerator / denominator
