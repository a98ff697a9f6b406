"""What a scenario's clients ask for: the stream of first attempts, whatever becomes of them.

Arrivals, lengths, tenants and prefixes are drawn from random streams of their own: another load changes when somebody
comes, not what the n-th asks for. Nothing here depends on what the fleet does, so all policies play the same traffic.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetsim.events import LoadEvent
from fleetsim.scenario import Scenario
from fleetsim.settings import Prefixes, Tenant, Traffic
from fleetsim.traffic.arrival import Arrival, Stream
from fleetsim.traffic.burst import Burst
from fleetsim.traffic.families import AZURE_CODE, MOONCAKE_SPREAD, Family
from fleetsim.traffic.generate import family, generate
from fleetsim.traffic.lengths import Lengths, UniformLengths
from fleetsim.traffic.rate import FloatArray, Rate
from fleetsim.traffic.reader import open_trace
from fleetsim.traffic.shape import merged
from fleetsim.virtual.courses import LoadCourse

CHUNK_TOKENS = 64  # of shared prompt beginnings
GRID_S = 0.1  # resolution of a trace's new clock
EVERYBODY = Tenant(name="")


@dataclass(frozen=True, slots=True)
class Offered:
    """The traffic of one run of `duration_s`: `base_rps` first attempts per second on average, before load events.

    Iterating it yields all arrivals, lazily; TraceError if the trace cannot be read.
    """

    scenario: Scenario
    base_rps: float
    duration_s: float
    seed: int

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        return self.scenario.tenants or (EVERYBODY,)

    def fanout(self, t: float) -> int:
        """Calls at once of a workflow's step; 1 where there is no workflow."""
        usual = 1 if self.scenario.workflow is None else self.scenario.workflow.fanout
        return LoadCourse(self._events, "").fanout(t, usual)

    def __iter__(self) -> Stream:
        if self.scenario.traffic.trace is not None:
            return self._replayed(self.scenario.traffic.trace)
        return merged(*(self._generated(tenant, i) for i, tenant in enumerate(self.tenants)))

    @property
    def _events(self) -> list[LoadEvent]:
        return [event for event in self.scenario.timeline if isinstance(event, LoadEvent)]

    def _grid(self) -> FloatArray:
        return np.linspace(0.0, self.duration_s, math.ceil(self.duration_s / GRID_S) + 1)

    def _rate(self, tenant: Tenant) -> Rate:
        share = tenant.share / sum(t.share for t in self.tenants)
        base = self.base_rps * share
        factor = LoadCourse(self._events, tenant.name).factor
        traffic, duration_s = self.scenario.traffic, self.duration_s
        if traffic.rate == "constant":
            return Rate(base * factor.peak, lambda t: base * factor.over(t))
        turn = 2 * math.pi / traffic.period_s
        mean = 1 + traffic.swing * (1 - math.cos(turn * duration_s)) / (turn * duration_s)
        base /= mean
        return Rate(
            base * factor.peak * (1 + traffic.swing),
            lambda t: base * factor.over(t) * (1 + traffic.swing * np.sin(turn * t)),
        )

    def _generated(self, tenant: Tenant, index: int) -> Stream:
        scenario, rate = self.scenario, self._rate(tenant)
        chosen = _family(scenario.traffic)
        lengths: Lengths = UniformLengths((tenant.workload or scenario.workload).workload)
        if chosen is not None and tenant.workload is None:
            lengths = chosen.lengths
        reuse = None if chosen is None else chosen.reuse
        burst = _burst(scenario.traffic, chosen, rate)
        drawn = generate(rate, burst, lengths, reuse, self.duration_s, self.seed, tenant.name)
        if scenario.traffic.prefixes is not None:
            rng = random.Random(f"prefixes-{tenant.name}-{self.seed}")
            drawn = _grouped(drawn, scenario.traffic.prefixes, index, rng)
        return _changed(drawn, LoadCourse(self._events, tenant.name))

    def _replayed(self, path: Path) -> Stream:
        """The trace from its beginning, on a clock that gives it the wanted rate, again and again until the run ends.

        All requests stay, in their order and with their relative distances while the rate is level. A tenant is drawn
        for those that name none.
        """
        count, first, last = 0, 0.0, 0.0
        for arrival in open_trace(path):
            first = arrival.t if count == 0 else first
            count, last = count + 1, arrival.t
        a_request = (last - first) / max(1, count - 1)  # seconds of the trace
        grid = self._grid()
        rates = self._rate_of_all(grid)
        asked = np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(grid))))
        named, shares = [t.name for t in self.tenants], [t.share for t in self.tenants]
        rng = random.Random(f"tenants-{self.seed}")

        def replay() -> Stream:
            passed = 0
            while True:
                for arrival in open_trace(path):
                    number = passed + ((arrival.t - first) / a_request if a_request else 0.0)
                    if number >= asked[-1]:
                        return
                    tenant = arrival.tenant or rng.choices(named, shares)[0]
                    yield arrival._replace(t=float(np.interp(number, asked, grid)), tenant=tenant)
                passed += count

        return _changed(replay(), LoadCourse(self._events, ""))

    def _rate_of_all(self, times: FloatArray) -> FloatArray:
        total: FloatArray = np.sum([self._rate(tenant).at(times) for tenant in self.tenants], axis=0)
        return total


def _family(traffic: Traffic) -> Family | None:
    """None: lengths are the scenario's. Mooncake's comes without the ticks of its recording."""
    if traffic.family == "uniform":
        return None
    return MOONCAKE_SPREAD if traffic.family == "mooncake-conversation" else family(traffic.family)


def _burst(traffic: Traffic, chosen: Family | None, rate: Rate) -> Burst:
    """Bursty arrivals have the index of dispersion of their trace at 1 s, as if more users of the same kind came;
    uniform lengths borrow the bursts of Azure's code trace, the burstiest.
    """
    if traffic.arrivals == "poisson" or rate.peak == 0:
        return Burst()
    model = chosen or AZURE_CODE
    return model.burst.held_to(model.published.dispersion_1s, rate.peak)


def _grouped(stream: Stream, prefixes: Prefixes, tenant: int, rng: random.Random) -> Stream:
    """Prompts that begin alike within a group, by whole chunks; tenants share nothing."""
    longest: dict[int, tuple[tuple[int, int], ...]] = {}
    for arrival in stream:
        group = rng.randrange(prefixes.groups)
        chunks = int(arrival.prompt_tokens * prefixes.share) // CHUNK_TOKENS
        known = longest.get(group, ())
        if len(known) < chunks:
            base = (tenant * prefixes.groups + group) << 20
            known = longest[group] = tuple((base + i, CHUNK_TOKENS) for i in range(chunks))
        yield arrival._replace(prefix=known[:chunks])


def _changed(stream: Stream, course: LoadCourse) -> Stream:
    """What load events do to the prompts."""
    if course.prompt_scale.level and course.always_shared:
        return stream
    return _rewritten(stream, course)


def _rewritten(stream: Stream, course: LoadCourse) -> Iterator[Arrival]:
    for arrival in stream:
        prompt = max(1, round(arrival.prompt_tokens * course.prompt_scale.at(arrival.t)))
        prefix = arrival.prefix if course.shared_prefixes(arrival.t) else ()
        while prefix and sum(tokens for _, tokens in prefix) > prompt:
            prefix = prefix[:-1]
        yield arrival._replace(prompt_tokens=prompt, prefix=prefix)
