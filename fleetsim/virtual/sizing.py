"""How much a fleet can serve, measured before it plays: what a scenario's `load` is a share of."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path

import numpy as np

from fleetsim.engine import Sequence
from fleetsim.scenario import Scenario
from fleetsim.settings import Hardware
from fleetsim.timing import Degradation
from fleetsim.traffic.families import FAMILIES
from fleetsim.traffic.lengths import IntArray, Lengths, UniformLengths, drawn
from fleetsim.traffic.random_streams import generator
from fleetsim.traffic.reader import open_trace
from fleetsim.virtual.engine import SkippingEngine
from fleetsim.virtual.server import Role

MEASURED_REQUESTS = 2000  # lengths of the families are very uneven: their mean must settle

Mix = tuple[tuple[float, Lengths], ...]


@dataclass(frozen=True, slots=True)
class TraceLengths:
    """Prompt and output lengths of the beginning of a trace, drawn together, as they came."""

    trace: Path

    def draw(self, rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        seen = np.array([(a.prompt_tokens, a.output_tokens) for a in islice(open_trace(self.trace), MEASURED_REQUESTS)])
        drawn = seen[rng.integers(0, len(seen), count)]
        return drawn[:, 0], drawn[:, 1]


def mix_of(scenario: Scenario) -> Mix:
    """What the scenario's calls ask for: lengths with their shares. TraceError if its trace cannot be read."""
    family, trace = scenario.traffic.family, scenario.traffic.trace
    if trace is not None:
        return ((1.0, TraceLengths(trace)),)
    usual: Lengths = UniformLengths(scenario.workload.workload) if family == "uniform" else FAMILIES[family].lengths
    if not scenario.tenants:
        return ((1.0, usual),)
    return tuple((t.share, UniformLengths(t.workload.workload) if t.workload else usual) for t in scenario.tenants)


def fleet_capacity_rps(scenario: Scenario, g: float = 1.0) -> float:
    """Requests a second that the scenario's engines finish at saturation, with nothing in the prefix caches.

    `g` multiplies all step times. Of a disaggregated fleet, what its narrower half can do.
    """
    hardware, mix = scenario.hardware, mix_of(scenario)
    if not scenario.prefill_engines:
        return scenario.engines * _replica_rps(hardware, mix, "serve", g)
    prefill = scenario.prefill_engines * _replica_rps(hardware, mix, "prefill", g)
    return min(prefill, scenario.engines * _replica_rps(hardware, mix, "decode", g))


@lru_cache(maxsize=256)
def _replica_rps(hardware: Hardware, mix: Mix, role: Role, g: float) -> float:
    """Saturate one engine and count, after a run-in of one batch's worth of requests twice over."""
    profile = hardware.profile
    engine = SkippingEngine(profile, Degradation(g))
    asked, ids = _lengths(mix), count()
    run_in = 2 * profile.max_num_seqs
    finished, now, started, counted_from = 0, 0.0, 0.0, 0
    while finished < run_in + MEASURED_REQUESTS:
        while engine.waiting_count < profile.max_num_seqs:
            prompt, output = next(asked)
            if role == "prefill":
                sequence = Sequence(next(ids), prompt, 1, now)
            elif role == "decode":
                sequence = Sequence(next(ids), prompt, max(output, 2), now, received=prompt, generated=1)
            else:
                sequence = Sequence(next(ids), prompt, output, now)
            engine.submit(sequence, now)
        now = engine.next_event
        finished += sum(done for _, _, done in engine.advance(now))
        if finished < run_in:
            started, counted_from = now, finished
    return (finished - counted_from) / (now - started)


def _lengths(mix: Mix) -> Iterator[tuple[int, int]]:
    chooser = random.Random("sizing-tenants")
    streams = [drawn(lengths, generator(f"sizing-{k}")) for k, (_, lengths) in enumerate(mix)]
    shares = [share for share, _ in mix]
    while True:
        yield next(chooser.choices(streams, shares)[0])
