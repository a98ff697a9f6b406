"""What happened to a counter between two samples: went on, restarted, fell, or was another process's.

A counter that falls was reset. Prometheus takes every fall for a restart and counts the new value, which
turns a target whose scrapes are answered by several processes in turn (each with its own totals) into rates
thousands of times too high. Here a fall only counts as a restart when something proves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from collector.model import FloatArray, StateArray

BoolArray = NDArray[np.bool_]

# Two readings of one process's start time differ by rounding only; forked workers start within the second.
START_MOVED_S = 1.0
# A process that answers after a restart started after the sample before it, give or take the hosts' clocks.
CLOCK_SLACK_S = 60.0


class Mark(IntEnum):
    """What one cell of one tick brought."""

    NONE = 0  # no usable sample, or the sample of an earlier tick again
    SAMPLE = 1  # a new sample that continues the ones before it
    FALL = 2  # a new sample that cannot continue the one before it, and nothing proves a restart
    RESTART = 3  # first sample of a new process, by its start time: everything it counts is new
    CUT = 4  # first sample after several counters of the row fell together: a restart, old end unknown


@dataclass(frozen=True)
class LastSamples:
    """Each cell's sample before, (C, R): NaN, -inf and NaN where there is none."""

    value: FloatArray
    time: FloatArray
    start: FloatArray  # the row's process start time at that sample, NaN where it was not known


def classify(
    value: FloatArray,
    sampled: BoolArray,
    last: LastSamples,
    *,
    start: FloatArray,
    own: BoolArray,
    counters: BoolArray,
) -> tuple[StateArray, FloatArray]:
    """Marks and increments of one tick, both (C, R); the increment is 0 where none is proven.

    value (C, R): as read. sampled (C, R): a new usable sample. start (R,): the row's process start time, NaN
    where it is not known. own (C,): columns counted by the process that `start` belongs to. counters (C,):
    columns the catalog knows as counters.

    Own columns: a start time that moved forward, to after the sample before, proves a restart, and the new
    value is the increment even where it is higher than the old one. A start time that moved in any other
    way is another process: a FALL, whichever way the counter went. A fall without a moved start is a FALL.

    Other columns (gateways, devices: no start time): three counters of a row falling in one tick, or two
    with none rising, are a restart. That proof is weaker (a second process looks alike the first time), so
    it only ends the window (CUT), counts nothing, and is held against the counter when it repeats.
    """
    before = sampled & np.isfinite(last.time)
    fell = before & (value < last.value)
    rose = before & (value > last.value)
    moved = start[None, :] - last.start
    owned = before & own[:, None]
    restarted = owned & (moved > START_MOVED_S) & (start[None, :] >= last.time - CLOCK_SLACK_S)
    switched = owned & (np.abs(moved) > START_MOVED_S) & ~restarted

    shared = (counters & ~own)[:, None]
    falls, rises = (fell & shared).sum(axis=0), (rose & shared).sum(axis=0)
    cut = before & ~own[:, None] & ((falls >= 3) | ((falls >= 2) & (rises == 0)))[None, :]

    mark = np.where(sampled, Mark.SAMPLE, Mark.NONE).astype(np.uint8)
    mark[fell | switched] = Mark.FALL
    mark[cut] = Mark.CUT
    mark[restarted] = Mark.RESTART
    increment = np.zeros_like(value)
    steady = before & (mark == Mark.SAMPLE)
    increment[steady] = value[steady] - last.value[steady]
    increment[restarted] = value[restarted]
    return mark, increment
