"""How far is the engine model from a real engine? `python -m benchmarks.calibration [--traces DIR] [-o json]`

Replays four measured vLLM 0.19.0 runs (300 ShareGPT requests at 10 a second; LLMServingSim's repository, MIT)
through the stepwise and the skipping engine and reports the error of the simulated against the measured
distribution of TTFT (first token - queued), TPOT ((last - first token) / (output tokens - 1)) and E2E (last
token - queued): mean, p50, p90, p99, in percent; negative where the model is too fast.

Where every figure comes from. Nothing here is fitted to these runs.
- T_W, c_tok, c_kv, c_att and the lm_head part of t0 of the Llama-3.1-8B rows: measured kernel tables of the
  two GPUs (fleetsim/coefficients.json).
- Host overhead of a step, four settings. `table`: the round 1 ms (and 3 us a sequence) that every row of the
  table holds and the fleet runs on. `none`. `blis`: 126 us a step, 32.1 us a layer and 4.42 us a request, which
  the authors of the BLIS simulator fitted to vLLM on H100, on other runs. `layers`: the table's and 2 x 9 us a
  layer, the latency of two all-reduces, which one GPU does not do; it is here because it reproduces the
  accuracy that the reference model states for itself (RTX PRO 6000 TTFT -7.6/-11.8/-8.6/-5.3 %), and the
  table alone does not. The last two were looked up after the first had missed a target.
- m, the slower KV read in steps that also carry prefill: 1.42 (RTX PRO 6000) and 2.04 (RTX 4090), as the
  reference model documents them; shown without it as m = 1.
- max_num_seqs, max_num_batched_tokens, KV tokens, scheduler_reserve_full_isl: the run's own meta.json. The RTX
  PRO 6000 runs do not record the last two: reserving is vLLM 0.19's default; KV tokens by the rule of
  coefficients.json, which is more than these runs ever use.
- Requests, with arrivals at their `queued_ts` and the outputs at their measured lengths: requests.jsonl.
- Qwen3 rows: no kernel table of this GPU and model. Scaled by datasheet from the model's shape, with the
  efficiencies of the RTX PRO 6000 tables. What they lack is in `missing` and printed with them; they are
  reported as they come and have no target.

Targets, for the documented m and the table's host overhead, on the two Llama-3.1-8B runs: mean within 10 %;
p90 of TPOT and E2E within 15 %, of TTFT within 25 %. The table shows the skipping engine and by how much the
stepwise one differs, the JSON both. Exit code 0: met, 1: not met, 2: no traces or unreadable ones.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.calibration_runs import HOST_S, Measured, Modelled, TraceError, modelled_runs, read_run
from fleetsim.engine import Sequence as Request
from fleetsim.timing import Profile
from fleetsim.virtual.engine import SkippingEngine
from fleetsim.virtual.engine_stepwise import SteppingEngine

DEFAULT_TRACES = Path(__file__).resolve().parents[1] / ".." / "shared" / "traces" / "vllm_measured"
BLIS_STEP_S, BLIS_LAYER_S, BLIS_REQUEST_S = 126e-6, 32.1e-6, 4.42e-6
ALL_REDUCES_S = 2 * 9e-6  # a layer
HOSTS = ("table", "none", "blis", "layers")
STATISTICS = ("mean", "p50", "p90", "p99")
METRICS = ("ttft", "tpot", "e2e")
# Percent by which a statistic may be off.
TARGETS = {("ttft", "mean"): 10, ("tpot", "mean"): 10, ("e2e", "mean"): 10,
           ("ttft", "p90"): 25, ("tpot", "p90"): 15, ("e2e", "p90"): 15}  # fmt: skip
Engine = SkippingEngine | SteppingEngine
ENGINES: dict[str, type[SkippingEngine] | type[SteppingEngine]] = {
    "stepwise": SteppingEngine,
    "skipping": SkippingEngine,
}


@dataclass(frozen=True)
class Setting:
    """Assumptions about what the kernel tables do not hold: one of HOSTS, and whether m is the documented one."""

    host: str
    mixed: bool

    @property
    def primary(self) -> bool:
        """What the fleet runs on and the targets are for."""
        return self.host == "table" and self.mixed

    def of(self, modelled: Modelled) -> Profile:
        profile = modelled.profile if self.mixed else replace(modelled.profile, mixed_kv_factor=1.0)
        if self.host == "table":
            return profile
        if self.host == "layers":
            return replace(profile, t0_s=profile.t0_s + modelled.layers * ALL_REDUCES_S)
        if self.host == "none":
            return replace(profile, t0_s=profile.t0_s - HOST_S)
        host = BLIS_STEP_S + modelled.layers * BLIS_LAYER_S
        return replace(profile, t0_s=profile.t0_s - HOST_S + host, sequence_s=BLIS_REQUEST_S)


SETTINGS = tuple(Setting(host, mixed) for mixed in (True, False) for host in HOSTS)


@dataclass(frozen=True)
class Replayed:
    """A run under one setting on one engine. `errors[metric][statistic]` in percent."""

    run: str
    engine: str
    host: str
    m: float
    primary: bool
    preemptions: int
    errors: dict[str, dict[str, float]]
    missing: str | None

    @property
    def misses(self) -> list[str]:
        """Statistics that are off by more than their target."""
        return [
            f"{self.run}, {self.engine}, {self.host}: expected {metric} {statistic} within {limit} %, "
            f"found {self.errors[metric][statistic]:+.1f} %"
            for (metric, statistic), limit in TARGETS.items()
            if not abs(self.errors[metric][statistic]) <= limit
        ]


def replay(engines: Sequence[Engine], requests: Iterable[tuple[float, int, int]]) -> list[Request]:
    """Give the requests to the engines in turn, each at its time, and run until all have ended."""
    served = []
    for number, (at, prompt, output) in enumerate(requests):
        engine = engines[number % len(engines)]
        engine.advance(at)
        served.append(Request(number, prompt, output, at))
        engine.submit(served[-1], at)
    for engine in engines:
        while engine.next_event < math.inf:
            engine.advance(engine.next_event)
    return served


def latencies(served: Iterable[Request]) -> dict[str, list[float]]:
    """The three latencies (s) of requests that have ended."""
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for request in served:
        first, last = request.first_token_at, request.finished_at
        assert first is not None and last is not None  # all of them have ended
        found["ttft"].append(first - request.arrival)
        found["e2e"].append(last - request.arrival)
        if request.max_tokens > 1:
            found["tpot"].append((last - first) / (request.max_tokens - 1))
    return found


def errors(simulated: dict[str, list[float]], measured: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Percent by which each statistic of each latency is off."""

    def statistics(values: list[float]) -> list[float]:
        return [float(np.mean(values)), *(float(p) for p in np.percentile(values, [50, 90, 99]))]

    return {
        metric: {
            name: 100 * (mine / real - 1)
            for name, mine, real in zip(
                STATISTICS, statistics(simulated[metric]), statistics(measured[metric]), strict=True
            )
        }
        for metric in METRICS
    }


def calibrate(measured: Measured, modelled: Modelled, setting: Setting, engine: str) -> Replayed:
    profile = replace(
        setting.of(modelled),
        max_num_seqs=measured.max_num_seqs,
        max_num_batched_tokens=measured.max_num_batched_tokens,
        kv_tokens=modelled.profile.kv_tokens if measured.kv_tokens is None else measured.kv_tokens,
    )
    engines = [
        ENGINES[engine](profile, reserve_full_prompt=measured.reserve_full_prompt) for _ in range(modelled.replicas)
    ]
    served = replay(engines, measured.requests)
    return Replayed(
        run=measured.name,
        engine=engine,
        host=setting.host,
        m=profile.mixed_kv_factor,
        primary=setting.primary,
        preemptions=sum(e.preemptions for e in engines),
        errors=errors(latencies(served), measured.latencies),
        missing=modelled.missing,
    )


def show(results: Sequence[Replayed]) -> None:
    table = Table(title="Error of the model in %, mean / p50 / p90 / p99 (negative: too fast)")
    for column in ("run", "m", "host", "preempted", "TTFT", "TPOT", "E2E", "in targets"):
        table.add_column(column)
    shown = [r for r in results if r.engine == "skipping"]
    others = [r for r in results if r.engine == "stepwise"]
    for result in shown:
        table.add_row(
            result.run,
            f"{result.m:g}",
            result.host,
            str(result.preemptions),
            *(" ".join(f"{result.errors[m][s]:+.1f}" for s in STATISTICS) for m in METRICS),
            "no" if result.misses else "yes",
            style="bold" if result.primary else None,
        )
    console = Console(width=170, highlight=False)
    console.print(table)
    apart = max(
        abs(mine.errors[m][s] - other.errors[m][s])
        for mine, other in zip(shown, others, strict=True)
        for m in METRICS
        for s in STATISTICS
    )
    console.print(f"The stepwise engine's errors differ by {apart:.1g} percentage points at most.")
    for run, missing in {r.run: r.missing for r in shown if r.missing}.items():
        console.print(f"{run} has no target. Missing: {missing}.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.calibration", description="Errors of the engine model.")
    parser.add_argument("--traces", type=Path, default=DEFAULT_TRACES, help="folder with one folder a measured run")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    modelled = modelled_runs()
    try:
        runs = [read_run(options.traces / name) for name in modelled]
    except (OSError, TraceError) as error:
        print(
            f"expected measured runs in {options.traces}, found {error}: give their folder with --traces",
            file=sys.stderr,
        )
        return 2
    results = [
        calibrate(run, modelled[run.name], setting, engine)
        for run in runs
        for setting in SETTINGS
        for engine in ENGINES
    ]
    misses = [miss for r in results if r.primary and r.missing is None for miss in r.misses]
    if options.output == "json":
        rows = [{**asdict(r), "met": not r.misses} for r in results]
        print(json.dumps({"schema_version": 1, "runs": rows, "missed": misses}, indent=2))
    else:
        show(results)
    for miss in misses:
        print(miss, file=sys.stderr)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
