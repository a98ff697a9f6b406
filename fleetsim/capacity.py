"""Capacity of one replica, measured: requests a second that a saturated engine finishes, in virtual time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count

from fleetsim.engine import Engine, Sequence
from fleetsim.timing import HEALTHY, Degradation, Profile
from fleetsim.workload import Workload


@dataclass(frozen=True, slots=True)
class Capacity:
    """`requests_per_s` finished by one replica whose batch is always full; `step_s` is the mean step."""

    requests_per_s: float
    step_s: float
    tensor_active: float
    dram_active: float


def capacity(
    profile: Profile,
    workload: Workload,
    degradation: Degradation = HEALTHY,
    seed: int = 0,
    measured_requests: int = 600,
) -> Capacity:
    """Saturate one engine and count, after a run-in of one batch's worth of requests twice over.

    A request that starts at once is served as fast as the batch allows, so this is the rate above which no
    latency objective can hold; it has no sampling error to speak of at a few hundred requests.
    """
    rng = random.Random(seed)
    engine = Engine(profile, degradation)
    ids = count()
    run_in = 2 * profile.max_num_seqs
    finished = steps = 0
    now = started = tensor = dram = 0.0
    while finished < run_in + measured_requests:
        while len(engine.waiting) < profile.max_num_seqs:
            prompt, output = workload.sample(rng)
            engine.submit(Sequence(next(ids), prompt, output, now))
        result = engine.step(now)
        assert result is not None  # the queue is never empty here
        now = result.end
        measuring = finished >= run_in
        finished += len(result.finished)
        if measuring:
            steps += 1
            tensor += result.tensor_s
            dram += result.dram_s
        else:
            started = now
            counted_from = finished
    elapsed = now - started
    return Capacity(
        requests_per_s=(finished - counted_from) / elapsed,
        step_s=elapsed / steps,
        tensor_active=tensor / elapsed,
        dram_active=dram / elapsed,
    )
