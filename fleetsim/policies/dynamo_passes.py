"""What Dynamo's planner is told by its engines, pieced together from what a vLLM engine's exporter shows.

Dynamo's engines publish every forward pass. An exporter has gauges and counters, so that a pass here is the mean of
those between two looks: its time is the mean inter-token latency, and there were as many as inter-token latencies a
sequence that ran.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.policies.dynamo_model import Limits, Pass
from fleetsim.policies.windows import ratio, rise
from fleetsim.scenario import Scenario
from fleetsim.timing import StepLoad, step_time
from fleetsim.virtual.observation import EngineSeen

SEATED = 0.9  # of max_num_seqs: requests then wait for a seat, not for the token budget


@dataclass(frozen=True, slots=True)
class Load:
    """A worker now: requests that run and wait, tokens of KV cache in use."""

    running: float
    waiting: float
    decode_kv: float


def load(engine: EngineSeen) -> Load | None:
    """None: the worker does not publish."""
    if engine.running is None or engine.waiting is None or engine.kv_usage is None or engine.kv_tokens is None:
        return None
    return Load(engine.running, engine.waiting, engine.kv_usage * engine.kv_tokens)


def increase(before: EngineSeen | None, after: EngineSeen, field: str) -> float | None:
    """What a counter rose by between two scrapes; None where one of them lacks it."""
    then: float | None = getattr(before, field) if before is not None else None
    now: float | None = getattr(after, field)
    return None if then is None or now is None else rise(then, now)


def mean_pass(before: EngineSeen | None, after: EngineSeen, limits: Limits, prompt_tokens: float) -> Pass | None:
    """None: nothing was decoded in between, or it cannot be told. `prompt_tokens`: of a usual request.

    An exporter counts a prompt when its prefill is done, so that work on prompts that are given up shows nowhere. But
    while more waits than a pass can take and half of the seats are free, chunked prefill fills every pass. In between,
    where some passes are full and others wait for a seat, it cannot be told.
    """
    then, now = load(before) if before is not None else None, load(after)
    decoded = increase(before, after, "itl_count")
    wall = ratio(increase(before, after, "itl_sum"), decoded)
    if then is None or now is None or not wall or not decoded:
        return None
    running = (now.running + then.running) / 2
    if not running:
        return None
    budget = limits.max_num_batched_tokens
    queued = min(then.waiting, now.waiting) * prompt_tokens > budget
    if queued and max(then.running, now.running) <= limits.max_num_seqs / 2:
        return Pass(budget - running, now.decode_kv, wall)
    seated = min(then.running, now.running) >= SEATED * limits.max_num_seqs
    calm = max(then.waiting, now.waiting) * prompt_tokens <= budget
    prompts = increase(before, after, "prompt_tokens")
    if prompts is None or not (seated or calm):
        return None
    computed = max(0.0, prompts - (increase(before, after, "cached_prompt_tokens") or 0.0))
    return Pass(min(computed * running / decoded, budget), now.decode_kv, wall)


def limits(scenario: Scenario) -> Limits:
    profile = scenario.hardware.profile
    return Limits(profile.max_num_batched_tokens, profile.max_num_seqs, profile.kv_tokens)


def benchmark(scenario: Scenario) -> list[Pass]:
    """The sweep before deployment that the SLA mode starts from: a healthy engine at 4 x 4 operating points."""
    profile = scenario.hardware.profile
    prompt, output = (sum(bounds) / 2 for bounds in (scenario.workload.prompt_tokens, scenario.workload.output_tokens))
    most = profile.max_num_seqs
    passes = []
    for sequences in sorted({1, max(1, most // 4), max(1, most // 2), most}):
        context = min(int(sequences * (prompt + output / 2)), profile.kv_tokens)
        room = profile.max_num_batched_tokens - sequences
        for prefill in (0, room // 8, room // 2, room):
            step = StepLoad(sequences, context, 1 if prefill else 0, prefill, prefill * prefill / 2)
            passes.append(Pass(prefill, context, step_time(profile, step).duration_s))
    return passes
