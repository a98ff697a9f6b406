"""How fast virtual time passes: `python -m benchmarks.virtual_speed [--hour] [-o json]`.

A steady fleet without a policy at the same load a replica, by its number of replicas: virtual seconds a CPU second of
this process, CPU microseconds a call, and how the CPU seconds of a virtual second grow with the replicas (1 is in
proportion). `--hour` adds an hour of 32 replicas at 150 requests a second. Building the world is not in the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fleetsim.scenario import Scenario, parse_scenario
from fleetsim.virtual import engine
from fleetsim.virtual.garbage import collected_seldom
from fleetsim.virtual.world import World

REQUESTS_PER_S = 150.0
REPLICAS = 32
SIZES = ((1, 1200.0), (REPLICAS, 300.0), (256, 60.0))  # replicas, virtual seconds
HOUR_S = 3600.0
COMPILED = not engine.__file__.endswith(".py")  # by `make fast`


@dataclass(frozen=True, slots=True)
class Speed:
    """One run. `cpu_s` is of the whole process, the run alone."""

    replicas: int
    virtual_s: float
    requests_per_s: float
    load: float
    calls: int
    cpu_s: float

    @property
    def virtual_per_cpu(self) -> float:
        return self.virtual_s / self.cpu_s

    @property
    def us_per_call(self) -> float:
        return self.cpu_s / self.calls * 1e6

    def document(self) -> dict[str, float]:
        return asdict(self) | {"virtual_per_cpu": self.virtual_per_cpu, "us_per_call": self.us_per_call}


def steady(replicas: int, duration_s: float) -> Scenario:
    """The library's hardware and traffic, and nothing happens."""
    document = {
        "name": "steady-speed",
        "about": "Nothing happens.",
        "truth": {"what": "nothing"},
        "engines": replicas,
        "max_replicas": replicas,
        "duration_s": duration_s,
        "trigger": {"start_s": 0, "end_s": 0},
        "hardware": {"max_num_seqs": 64, "jitter": 0.05},
        "traffic": {"family": "azure-conv"},
        "serving": {"ingress_s": 0.015, "token_s": 0.00005},
        "clients": {"timeout_s": 10, "stream": True, "retries": 2},
    }
    return parse_scenario(document, "benchmarks.virtual_speed")


def measure(replicas: int, duration_s: float, requests_per_s: float) -> Speed:
    """CPU seconds of a run at so many requests a second for the whole fleet."""
    scenario = steady(replicas, duration_s)
    load = requests_per_s / World(scenario, seed=1, load=1.0).capacity_rps
    world = World(scenario, seed=1, load=load)
    started = time.process_time()
    with collected_seldom():
        world.run_until(duration_s)
    cpu_s = time.process_time() - started
    return Speed(replicas, duration_s, requests_per_s, load, len(world.finish("none").calls), cpu_s)


def growth(speeds: Sequence[Speed]) -> float:
    """Exponent k of CPU a virtual second ~ replicas^k, by least squares of the logarithms."""
    xs = [math.log(one.replicas) for one in speeds]
    ys = [math.log(one.cpu_s / one.virtual_s) for one in speeds]
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.virtual_speed", description=__doc__)
    parser.add_argument("--hour", action="store_true", help="also an hour of 32 replicas at 150 requests a second")
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    speeds = []
    for replicas, duration_s in SIZES:
        speeds.append(measure(replicas, duration_s, REQUESTS_PER_S / REPLICAS * replicas))
        print(f"done: {replicas} replicas", file=sys.stderr, flush=True)
    hour = measure(REPLICAS, HOUR_S, REQUESTS_PER_S) if options.hour else None
    exponent = growth(speeds)
    how = "compiled" if COMPILED else "interpreted"
    if options.output == "json":
        document = {
            "schema_version": 1,
            "python": platform.python_version(),
            "compiled": COMPILED,
            "runs": [s.document() for s in speeds],
            "growth_exponent": exponent,
            "hour": None if hour is None else hour.document(),
        }
        print(json.dumps(document))
        return 0
    print(f"{'replicas':>8} {'virtual s':>9} {'requests/s':>10} {'load':>5} {'virtual s/CPU s':>15} {'us a call':>9}")
    for s in speeds + ([hour] if hour is not None else []):
        print(
            f"{s.replicas:8} {s.virtual_s:9.0f} {s.requests_per_s:10.1f} {s.load:5.2f} "
            f"{s.virtual_per_cpu:15.1f} {s.us_per_call:9.1f}"
        )
    print(f"CPU a virtual second grows with replicas^{exponent:.2f}")
    print(f"Python {platform.python_version()}, the hot part {how}")
    if hour is not None:
        print(f"an hour of {REPLICAS} replicas at {REQUESTS_PER_S:g} requests/s: {hour.cpu_s:.1f} CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
