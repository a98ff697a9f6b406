"""Puts rows of many targets into one table of the frame, with their age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from collector.catalog import Aggregate, signals
from collector.model import FloatArray, Histogram, Level, SignalState, Table
from collector.rows import Rows

# Plain numbers: looking up an enum member costs more than the work it is for, thousands of times a frame.
_NEVER_SEEN, _STALE = int(SignalState.NEVER_SEEN), int(SignalState.STALE)


@dataclass(frozen=True)
class Part:
    """Rows of one target: row `source[i]` of `rows`, read at `read_at`, belongs in row `into[i]`."""

    rows: Rows
    into: Sequence[int]
    source: Sequence[int]
    read_at: float


@cache
def scalar_columns(level: Level) -> tuple[str, ...]:
    """All gauges and counters of a level, in the catalog's order."""
    return tuple(name for name, s in signals().items() if s.signal.level is level and not s.is_histogram)


@cache
def histogram_names(level: Level) -> tuple[str, ...]:
    """All histograms of a level, in the catalog's order."""
    return tuple(name for name, s in signals().items() if s.signal.level is level and s.is_histogram)


@cache
def _positions(level: Level, columns: tuple[str, ...]) -> NDArray[np.intp]:
    where = {name: i for i, name in enumerate(scalar_columns(level))}
    return np.array([where[name] for name in columns], dtype=np.intp)


@cache
def _minimum_columns(columns: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.array([signals()[name].aggregate is Aggregate.MIN for name in columns], dtype=np.bool_)


def build_table(level: Level, rows: Sequence[str], parts: Sequence[Part], at: float, freshness_s: float) -> Table:
    """A table of all the level's signals. Where two targets fill a cell, their values add up (or the lower
    one counts, where the catalog says so), and one unknown makes the cell unknown.
    """
    table = Table.empty(rows, scalar_columns(level))
    for columns, group in _by_columns(parts).items():
        _merge(table, level, columns, group, at)
    lists: dict[str, list[Histogram | None]] = {name: [None] * len(rows) for name in histogram_names(level)}
    states = {name: [_NEVER_SEEN] * len(rows) for name in lists}
    for part in parts:
        stale = at - part.read_at > freshness_s
        for name, values in part.rows.histograms.items():
            given, into, into_states = part.rows.histogram_state[name], lists[name], states[name]
            for row, source in zip(part.into, part.source, strict=True):
                state = given[source]
                into_states[row] = _STALE if stale and state != _NEVER_SEEN else state
                into[row] = None if stale else values[source]
    old = (table.age_s > freshness_s) & (table.state != SignalState.NEVER_SEEN)
    table.state[old] = SignalState.STALE
    table.value[table.state > SignalState.IDLE] = np.nan
    histogram_state = {name: np.array(each, dtype=np.uint8) for name, each in states.items()}
    return Table(table.rows, table.columns, table.value, table.state, table.age_s, lists, histogram_state)


def _by_columns(parts: Sequence[Part]) -> dict[tuple[str, ...], list[list[Part]]]:
    """Parts of the same columns, in layers whose parts fill different rows, so that a layer is one write."""
    layers: dict[tuple[str, ...], list[list[Part]]] = {}
    filled: dict[tuple[str, ...], list[set[int]]] = {}
    for part in parts:
        own, taken = layers.setdefault(part.rows.columns, []), filled.setdefault(part.rows.columns, [])
        layer = next((i for i, rows in enumerate(taken) if rows.isdisjoint(part.into)), len(taken))
        if layer == len(taken):
            own.append([])
            taken.append(set())
        own[layer].append(part)
        taken[layer].update(part.into)
    return layers


def _merge(table: Table, level: Level, columns: tuple[str, ...], layers: Sequence[Sequence[Part]], at: float) -> None:
    positions, minimum = _positions(level, columns), _minimum_columns(columns)
    for layer in layers:
        into = np.array([row for part in layer for row in part.into], dtype=np.intp)
        if not into.size:
            continue
        cells = np.ix_(into, positions)
        value = np.concatenate([_rows(part.rows.value, part.source) for part in layer])
        state = np.concatenate([_rows(part.rows.state, part.source) for part in layer])
        ages = np.array([max(0.0, at - part.read_at) for part in layer for _ in part.into])
        age = np.where(state == SignalState.NEVER_SEEN, np.inf, ages[:, None])
        before, before_state, before_age = table.value[cells], table.state[cells], table.age_s[cells]
        alone = before_state == SignalState.NEVER_SEEN
        other = state == SignalState.NEVER_SEEN
        both = np.where(minimum, np.minimum(before, value), before + value)
        table.value[cells] = np.where(alone, value, np.where(other, before, both))
        table.state[cells] = np.where(alone, state, np.where(other, before_state, np.maximum(state, before_state)))
        table.age_s[cells] = np.where(alone, age, np.where(other, before_age, np.maximum(age, before_age)))


def _rows(array: NDArray[np.generic], source: Sequence[int]) -> NDArray[np.generic]:
    return array if len(source) == len(array) == 1 else array[list(source)]


def sample_times(table: Table, column: str, at: float) -> FloatArray:
    """(R,) when the column was sampled, -inf where it never was."""
    return at - table.age_s[:, table.columns.index(column)]
