"""Traffic without files: arrivals, lengths and prefixes of a family, lazily and always the same for a seed."""

from __future__ import annotations

import math

from fleetsim.traffic.arrival import Arrival, Stream
from fleetsim.traffic.burst import Burst, arrival_times
from fleetsim.traffic.families import FAMILIES, Family
from fleetsim.traffic.lengths import Lengths, drawn
from fleetsim.traffic.random_streams import generator
from fleetsim.traffic.rate import Rate, constant
from fleetsim.traffic.reuse import Conversations, Reuse


def family(name: str) -> Family:
    """A family by its name; ValueError names those there are."""
    if name not in FAMILIES:
        raise ValueError(f"expected a family of traffic, found {name!r}: use one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def from_family(
    chosen: Family,
    duration_s: float,
    seed: int,
    rate: Rate | None = None,
    dispersion_1s: float | None = None,
    tenant: str = "",
) -> Stream:
    """Traffic of a family, at its own mean rate unless another is given.

    At another rate the family's relative swings stay, so the excess of the index of dispersion over 1 grows with the
    rate, like that of a thinned trace falls; `dispersion_1s` holds the index instead (at the rate's peak).
    """
    offered = rate or constant(chosen.published.mean_rate)
    burst = chosen.burst if dispersion_1s is None else chosen.burst.held_to(dispersion_1s, offered.peak)
    return generate(offered, burst, chosen.lengths, chosen.reuse, duration_s, seed, tenant)


def generate(
    rate: Rate, burst: Burst, lengths: Lengths, reuse: Reuse | None, duration_s: float, seed: int, tenant: str = ""
) -> Stream:
    """Arrivals in [0, duration_s). Times, lengths and prefixes are drawn from streams of their own: another length
    distribution changes nobody's arrival time. Streams to be merged need different tenants or seeds: only then are they
    independent and share no prefix.
    """
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise ValueError(f"expected a duration of more than 0 s, found {duration_s}: give a finite one")
    times = arrival_times(rate, burst, duration_s, f"traffic-arrivals-{tenant}-{seed}")
    pairs = drawn(lengths, generator(f"traffic-lengths-{tenant}-{seed}"))
    if reuse is None:
        return (Arrival(t, prompt, output, (), tenant) for t, (prompt, output) in zip(times, pairs, strict=False))
    chunks = Conversations(reuse, f"traffic-reuse-{tenant}-{seed}").chunks
    return (
        Arrival(t, prompt, output, chunks(t, prompt), tenant) for t, (prompt, output) in zip(times, pairs, strict=False)
    )
