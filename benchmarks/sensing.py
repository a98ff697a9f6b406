"""Is what is sensed right? `python -m benchmarks.sensing [-o json]` asks the embedded fleet, which knows.

The ratio of HBM to compute crosses 1 between a decode-heavy and a prefill-heavy load; dollars agree with the
fleet's own log of its replicas; a build that decodes 30 % slower is a regression, prompts twice as long are not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from benchmarks.watching import Also, Sample, Watched, watch
from fleetsim.children import ChildError
from fleetsim.conductor import Embedded
from fleetsim.file_sd import POOL
from fleetsim.outcomes import cost_usd

AT_ONCE = 2
RATIO_FOR_S = 60.0
DOLLARS_FOR_S, MORE_AT_S, FEWER_AT_S = 120.0, 20.0, 75.0
STORY_FOR_S = 180.0
AGREES_WITHIN = 0.01
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Answer:
    """One question: what was expected, what was found, and whether that is right."""

    question: str
    expected: str
    found: str
    right: bool


def settled_ratio(samples: Sequence[Sample]) -> float | None:
    """Median HBM/compute ratio of the last half of the run; None where none of it is known."""
    late = samples[len(samples) // 2 :]
    known = [sample.hbm_compute_ratio for sample in late if sample.hbm_compute_ratio is not None]
    return statistics.median(known) if known else None


def dollars(watched: Watched) -> tuple[float, float]:
    """(by the agent, by the fleet) between the agent's first and last sample.

    The agent's rate holds from one cycle to the next. A cycle at which it was unknown cannot be billed: there
    must be none.
    """
    billed = 0.0
    for sample, later in zip(watched.samples, watched.samples[1:], strict=False):
        if sample.cost_usd_per_hour is None:
            raise ValueError(f"expected a cost at every cycle, found none at {sample.at}: see the agent's log")
        billed += sample.cost_usd_per_hour * (later.at - sample.at) / SECONDS_PER_HOUR
    return billed, cost_usd(watched.transitions, watched.samples[0].at, watched.samples[-1].at)


def first_told(watched: Watched, slug: str) -> tuple[float, str] | None:
    """Seconds from the clients' start, and summary, of the first sample with a finding."""
    for sample in watched.samples:
        if slug in sample.findings:
            return sample.at - watched.played_at, sample.findings[slug]
    return None


def scaling(replicas: Sequence[tuple[float, int]]) -> Also:
    """Scale the fleet over its admin API at the given seconds: cold starts and draining are in the bill."""

    async def scale(running: Embedded, session: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for at_s, number in replicas:
            await asyncio.sleep(began + at_s - loop.time())
            url, body = f"{running.fleet['admin_url']}/admin/scale", {"pool": POOL, "replicas": number}
            async with session.put(url, json=body) as answer:
                answer.raise_for_status()

    return scale


async def _ratio(folder: Path) -> list[Answer]:
    found: list[Answer] = []
    for name, above in (("decode-heavy", True), ("prefill-heavy", False)):
        ratio = settled_ratio((await watch(name, folder / name, RATIO_FOR_S)).samples)
        right = ratio is not None and (ratio > 1 if above else ratio < 1)
        told = "unknown" if ratio is None else f"{ratio:.3f}"
        found.append(Answer(f"HBM/compute ratio, {name}", "above 1" if above else "below 1", told, right))
    return found


async def _dollars(folder: Path) -> list[Answer]:
    also = scaling(((MORE_AT_S, 6), (FEWER_AT_S, 4)))
    watched = await watch("steady", folder / "dollars", DOLLARS_FOR_S, also=also)
    ours, truth = dollars(watched)
    difference = ours / truth - 1
    told = f"{ours:.4f} USD against {truth:.4f}: {difference:+.2%}"
    return [Answer("dollars over 4, 6, 4 replicas", "within 1 %", told, abs(difference) <= AGREES_WITHIN)]


async def _regression(folder: Path) -> list[Answer]:
    watched = await watch("decode-regression", folder / "regression", STORY_FOR_S)
    told = first_told(watched, "latency-regression")
    found = "never" if told is None else f"at {told[0]:.0f} s: {told[1]}"
    return [Answer("one build decodes 30 % slower from 30 s on", "latency-regression", found, told is not None)]


async def _growth(folder: Path) -> list[Answer]:
    watched = await watch("prompt-growth", folder / "growth", STORY_FOR_S)
    wrong, mix = first_told(watched, "latency-regression"), first_told(watched, "mix-shift")
    parts = [
        "no latency-regression" if wrong is None else f"latency-regression at {wrong[0]:.0f} s: {wrong[1]}",
        "no mix-shift" if mix is None else f"mix-shift at {mix[0]:.0f} s",
    ]
    return [Answer("prompts twice as long", "no latency-regression", "; ".join(parts), wrong is None)]


CHECKS = {"ratio": _ratio, "dollars": _dollars, "regression": _regression, "growth": _growth}


async def check(names: Sequence[str], folder: Path, at_once: int = AT_ONCE) -> list[Answer]:
    """Answer the named questions, a few at a time: they are wall clock and mostly idle."""
    turn = asyncio.Semaphore(at_once)

    async def one(name: str) -> list[Answer]:
        async with turn:
            return await CHECKS[name](folder)

    answers = await asyncio.gather(*(one(name) for name in names))
    return [finding for answer in answers for finding in answer]


def table(findings: Sequence[Answer]) -> str:
    """One line a question."""
    return "\n".join(
        f"{'right' if one.right else 'WRONG':<6} {one.question:<44} expected {one.expected:<22} found {one.found}"
        for one in findings
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sensing", description=__doc__)
    parser.add_argument("--only", choices=sorted(CHECKS), action="append")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--workdir", type=Path, help="keep logs and journals here")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    names = options.only or list(CHECKS)
    try:
        if options.workdir is not None:
            findings = asyncio.run(check(names, options.workdir, options.at_once))
        else:
            with tempfile.TemporaryDirectory(prefix="inferostat-sensing-") as folder:
                findings = asyncio.run(check(names, Path(folder), options.at_once))
    except ChildError as error:
        print(f"sensing: {error}", file=sys.stderr)
        return 2
    if options.output == "json":
        print(json.dumps({"schema_version": 1, "checks": [asdict(one) for one in findings]}))
    else:
        print(table(findings))
    return 0 if all(one.right for one in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
