"""Frames written down as series: the shortest way to a History in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collector.history import History
from collector.model import Frame, Histogram, Level, SignalState, Table, Topology

Value = float | Histogram | SignalState


def table(rows: Mapping[str, Mapping[str, Value]], ages: Mapping[str, float] | None = None) -> Table:
    """A table of row -> signal -> number (KNOWN), histogram (KNOWN) or state; other cells NEVER_SEEN."""
    names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    histograms = [n for n in names if any(isinstance(cells.get(n), Histogram) for cells in rows.values())]
    built = Table.empty(tuple(rows), tuple(n for n in names if n not in histograms))
    for r, (row, cells) in enumerate(rows.items()):
        for c, name in enumerate(built.columns):
            cell = cells.get(name, SignalState.NEVER_SEEN)
            built.age_s[r, c] = (ages or {}).get(row, 0.0)
            if isinstance(cell, SignalState):
                built.state[r, c] = cell
            elif not isinstance(cell, Histogram):
                built.value[r, c], built.state[r, c] = cell, SignalState.KNOWN
    values = {
        name: [h if isinstance(h := cells.get(name), Histogram) else None for cells in rows.values()]
        for name in histograms
    }
    states = {
        name: np.array([_state(cells.get(name)) for cells in rows.values()], dtype=np.uint8) for name in histograms
    }
    return Table(built.rows, built.columns, built.value, built.state, built.age_s, values, states)


def _state(cell: Value | None) -> SignalState:
    if isinstance(cell, SignalState):
        return cell
    return SignalState.KNOWN if isinstance(cell, Histogram) else SignalState.NEVER_SEEN


def frame(
    at: float,
    rows: Mapping[str, Mapping[str, Value]],
    level: Level = Level.ENDPOINT,
    ages: Mapping[str, float] | None = None,
) -> Frame:
    tables = {each: Table.empty((), ()) for each in Level} | {level: table(rows, ages)}
    return Frame(at, tables[Level.ENDPOINT], tables[Level.DEVICE], tables[Level.ROUTE], Topology())


def history_of(
    samples: Sequence[tuple[float, Mapping[str, Value]]], row: str = "e0", level: Level = Level.ENDPOINT
) -> History:
    """One row's history from (time, cells) pairs."""
    history = History()
    for at, cells in samples:
        history.append(frame(at, {row: cells}, level))
    return history
