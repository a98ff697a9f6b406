"""NVIDIA Dynamo's planner in SLA mode for engines that prefill and decode: two loops.

components/src/dynamo/planner/core/{load_scaling,throughput_scaling,state_machine}.py. Every 180 s the throughput loop
sets a lower bound from the predicted request rate; every 5 s the load loop moves by one replica above it: up when all
workers break a target, down when the others would keep it with the load spread over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetsim.policies import dynamo_passes, pods
from fleetsim.policies.dynamo_model import AggregatedModel
from fleetsim.policies.dynamo_passes import Load
from fleetsim.policies.policy import PolicyInfo, Untouched
from fleetsim.policies.windows import ratio
from fleetsim.scenario import Scenario
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import EngineSeen, GatewaySeen, Observation

LOAD_S, THROUGHPUT_S = 5.0, 180.0
SENSITIVITY = 0.80  # load_scaling_down_sensitivity, of what the target leaves
MIN_ENDPOINT = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """One side's wish: replicas, or None when it cannot tell; `refused`: fewer would break the target."""

    replicas: int | None
    refused: bool = False


def side(estimates: Sequence[float | None], target: float, workers: int, can_consolidate: bool | None) -> Verdict:
    """Up when every worker's estimate is over the target, down when the workers left would keep it.

    `can_consolidate` None: not known, which is no. Of a refusal the answer is the present count, so that the
    other side alone cannot scale down.
    """
    known = [e for e in estimates if e is not None]
    if not known:
        return Verdict(None)
    if all(e > target for e in known):
        return Verdict(workers + 1)
    if workers > 1 and can_consolidate:
        return Verdict(max(workers - 1, MIN_ENDPOINT))
    refused = workers > 1 and can_consolidate is False
    return Verdict(workers if refused else None, refused)


def combined(prefill: int | None, decode: int | None, workers: int) -> int:
    """Either side may scale up; down only both, or decode where prefill cannot tell."""
    if prefill is not None and prefill > workers:
        return prefill
    if decode is not None and decode > workers:
        return decode
    if decode is not None and decode < workers and (prefill is None or prefill < workers):
        return decode if prefill is None else max(prefill, decode)
    return workers


def prefill_side(model: AggregatedModel, loads: Sequence[Load], ttft_s: float, hit_rate: float) -> Verdict:
    """TTFT of a next request. Spread over one worker fewer, what the queue adds must stay under 80 % of what the
    target leaves beside the request's own prefill."""
    workers = len(loads)
    growth = workers / (workers - 1) if workers > 1 else 1.0
    prompt = model.prompt_tokens.value

    def fits(load: Load) -> bool | None:
        kv = load.decode_kv * growth
        own = model.ttft_s(0.0, kv, hit_rate)
        after = model.ttft_s(load.waiting * prompt * growth, kv, hit_rate)
        if own is None or after is None:
            return None
        budget = (ttft_s - own) * SENSITIVITY
        return budget > 0 and after - own < budget

    estimates = [model.ttft_s(load.waiting * prompt, load.decode_kv, hit_rate) for load in loads]
    return side(estimates, ttft_s, workers, _all(fits, loads))


def decode_side(model: AggregatedModel, loads: Sequence[Load], itl_s: float) -> Verdict:
    """ITL of a next request. Spread over one worker fewer, running and queued requests must fit the KV cache and
    stay under 80 % of the target."""
    workers = len(loads)
    growth = workers / (workers - 1) if workers > 1 else 1.0

    def fits(load: Load) -> bool | None:
        kv = (load.decode_kv + load.waiting * model.prompt_tokens.value) * growth
        if kv >= model.limits.max_kv_tokens:
            return False
        after = model.itl_s(kv)
        return None if after is None else after < itl_s * SENSITIVITY

    return side([model.itl_s(load.decode_kv) for load in loads], itl_s, workers, _all(fits, loads))


def _all(fits: Callable[[Load], bool | None], loads: Sequence[Load]) -> bool | None:
    """False if any does not fit, else None if of any it is not known."""
    found = [fits(load) for load in loads]
    return False if False in found else None if None in found else True


class Dynamo(Untouched):
    name = "dynamo"
    period_s = LOAD_S

    def __init__(self, scenario: Scenario) -> None:
        self._ttft_s, self._itl_s = scenario.slo.ttft_s, scenario.slo.tpot_s
        self.model = AggregatedModel(dynamo_passes.limits(scenario), dynamo_passes.benchmark(scenario))
        self.model.prompt_tokens.add(sum(scenario.workload.prompt_tokens) / 2)
        self.lower_bound: int = MIN_ENDPOINT
        self._before: dict[str, EngineSeen] = {}
        self._window: dict[str, EngineSeen] = {}  # where the throughput window began
        self._gateway: GatewaySeen | None = None
        self._throughput_due: float | None = None
        self._lengths: tuple[float, float] | None = None
        self._hit_rate = 0.0

    def decide(self, seen: Observation, controls: Controls) -> None:
        ready = seen.ready
        engines = pods.engines(ready, seen.now)
        self._observe(engines)
        if self._throughput_due is None:
            # A planner that has been running has set a bound already; that it was met is all that can be known of it.
            self.lower_bound = seen.wanted
            self._begin_window(seen, engines)
        elif seen.now >= self._throughput_due:
            self._throughput(seen, engines)
            self._begin_window(seen, engines)
        loads = [load for engine in engines.values() if (load := dynamo_passes.load(engine)) is not None]
        if len(ready) != seen.wanted or len(seen.replicas) != len(ready):
            return  # scaling in progress: replicas come or still drain
        if not loads or len(loads) != len(ready) or not self.model.ready:
            return  # no data, worker count mismatch, insufficient data
        prefill = prefill_side(self.model, loads, self._ttft_s, self._hit_rate)
        decode = decode_side(self.model, loads, self._itl_s)
        desired = combined(prefill.replicas, decode.replicas, len(loads))
        replicas = pods.bounded(max(desired, self.lower_bound), seen)
        if replicas != seen.wanted:
            why = f"load loop {desired}, lower bound of the throughput loop {self.lower_bound}"
            controls.scale(self.name, replicas, why)

    def _observe(self, engines: dict[str, EngineSeen]) -> None:
        for name, engine in engines.items():
            before = self._before.get(name)
            found = dynamo_passes.mean_pass(before, engine, self.model.limits, self.model.prompt_tokens.value)
            if found is not None:
                self.model.observe(found)
            finished = dynamo_passes.increase(before, engine, "requests_finished")
            prompt = ratio(dynamo_passes.increase(before, engine, "request_prompt_sum"), finished)
            if prompt is not None:
                self.model.prompt_tokens.add(prompt)
            if engine.running and (load := dynamo_passes.load(engine)) is not None:
                self.model.decode_length.add(load.decode_kv / engine.running)
        self._before = engines

    def _begin_window(self, seen: Observation, engines: dict[str, EngineSeen]) -> None:
        self._throughput_due = seen.now + THROUGHPUT_S
        self._window = engines
        self._gateway = seen.gateway or self._gateway

    def _throughput(self, seen: Observation, engines: dict[str, EngineSeen]) -> None:
        """The bound for the next window, predicted to be like this one. A failed read of the requests counts as 0."""
        requests = 0.0
        if seen.gateway is not None and self._gateway is not None:
            requests = max(0.0, seen.gateway.requests - self._gateway.requests)

        def rose(field: str) -> float:
            found = (dynamo_passes.increase(self._window.get(name), e, field) for name, e in engines.items())
            return sum(f for f in found if f is not None)

        finished, prompts = rose("requests_finished"), rose("prompt_tokens")
        if finished:
            self._lengths = rose("request_prompt_sum") / finished, rose("request_generation_sum") / finished
        if prompts:
            self._hit_rate = min(1.0, rose("cached_prompt_tokens") / prompts)
        if self._lengths is None:
            return  # nothing to predict from
        best = self.model.best_rps(*self._lengths, self._ttft_s, self._itl_s, self._hit_rate)
        if best is not None:
            self.lower_bound = max(math.ceil(requests / THROUGHPUT_S / best.rps), MIN_ENDPOINT)


INFO = PolicyInfo(
    name="dynamo",
    title="Dynamo planner, SLA mode",
    decides_by="predicted TTFT and ITL of each worker; requests of 180 s over an engine's best rate",
    citation="NVIDIA Dynamo, components/src/dynamo/planner/core (2026), aggregated mode with both loops",
    defaults={
        "load, throughput interval": "5 s, 180 s",
        "TTFT, ITL": "the scenario's objective",
        "load_scaling_down_sensitivity": "80",
        "samples": "at most 64, at least 5, 16 buckets",
        "min_endpoint": "1",
        "load predictor": "constant",
    },
    missing="a worker that does not publish, or a replica that is not ready: the load loop only observes; "
    "a failed read of the request count is 0 requests (dynamo#14765); lengths are carried forward",
    simplified="a forward pass is the mean of those between two scrapes; constant predictor in place of ARIMA; "
    "the sweep before deployment is 16 steps of the healthy profile; no GPU or power budget, "
    "no timeout of scaling; a negative slope of KV counts as 0; the first bound is the count it finds, as if it had "
    "been running",
    build=Dynamo,
)
