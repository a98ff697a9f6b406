"""Traffic made of traffic: every function takes a stream and gives one, lazily, in order of time."""

from __future__ import annotations

import heapq
import math
import random
from operator import attrgetter
from typing import Literal

from fleetsim.traffic.arrival import Arrival, Stream


def scaled(stream: Stream, time_factor: float) -> Stream:
    """Times multiplied: 0.5 is twice the rate for half as long. Every request, their order and prefix reuse stay;
    the index of dispersion at w seconds becomes what it was at w / time_factor.
    """
    if not 0 < time_factor < math.inf:
        raise ValueError(f"expected a time factor above 0, found {time_factor}: give a finite one")
    return (arrival._replace(t=arrival.t * time_factor) for arrival in stream)


def thinned(stream: Stream, keep: float, rng: random.Random) -> Stream:
    """Each arrival kept with probability `keep`, independently. Times and lengths keep their distributions; the excess
    of the index of dispersion over 1 is multiplied by `keep`, and prefix reuse falls, as partners go missing.
    """
    if not 0 <= keep <= 1:
        raise ValueError(f"expected a share to keep between 0 and 1, found {keep}: thinning only takes away")
    return (arrival for arrival in stream if rng.random() < keep)


def window(stream: Stream, start_s: float, end_s: float) -> Stream:
    """Arrivals with start <= t < end, t counted from start; stops reading at the end."""
    if not 0 <= start_s < end_s:
        raise ValueError(f"expected 0 <= start < end, found {start_s} and {end_s}: correct the window")
    for arrival in stream:
        if arrival.t >= end_s:
            return
        if arrival.t >= start_s:
            yield arrival._replace(t=arrival.t - start_s)


def to_rate(
    stream: Stream, wanted: float, measured: float, by: Literal["thinning", "time"], rng: random.Random
) -> Stream:
    """A stream of mean rate `measured` brought to `wanted` (requests/s).

    "thinning" keeps the clock (duration, daily shape, length of bursts) and can only lower the rate; "time" keeps the
    requests (count, order, prefix reuse) and compresses or stretches the clock. See `thinned` and `scaled`.
    """
    if not (wanted > 0 and measured > 0):
        raise ValueError(f"expected rates above 0, found {wanted} and {measured}: measure the stream first")
    if by == "time":
        return scaled(stream, measured / wanted)
    if wanted > measured:
        raise ValueError(f"expected at most {measured} requests/s by thinning, found {wanted}: scale by time")
    return thinned(stream, wanted / measured, rng)


def spread(stream: Stream, tick_s: float, rng: random.Random) -> Stream:
    """Undoes a recording at ticks: arrivals of one tick are spread evenly at random until the next. Holds one tick's
    arrivals at a time.
    """
    if not 0 < tick_s < math.inf:
        raise ValueError(f"expected a tick above 0 s, found {tick_s}: give the trace's own")
    tick: list[Arrival] = []
    for arrival in stream:
        if tick and arrival.t - tick[0].t >= tick_s / 2:
            yield from _spread(tick, tick_s, rng)
            tick = []
        tick.append(arrival)
    yield from _spread(tick, tick_s, rng)


def _spread(tick: list[Arrival], tick_s: float, rng: random.Random) -> Stream:
    offsets = sorted(rng.random() * tick_s for _ in tick)
    return (arrival._replace(t=tick[0].t + offset) for arrival, offset in zip(tick, offsets, strict=True))


def merged(*streams: Stream) -> Stream:
    """Several streams as one, in order of time; of equal times the earlier argument's come first."""
    return heapq.merge(*streams, key=attrgetter("t"))
