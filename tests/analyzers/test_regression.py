"""Latency regressions are found, and longer prompts, more load and a colder cache are not taken for one."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from analyzers import regression
from analyzers.model import Analysis, Layer
from analyzers.sequential import explained, find_rise
from analyzers.series import CONFOUNDERS
from tests.analyzers.fleet_model import Counts
from tests.analyzers.frames import Loop, frame, histogram, topology

FINE = np.append(np.geomspace(0.005, 20, 60), math.inf)
CHANGE_S, END_S = 300, 420


def run(
    *,
    slow_build: str | None = None,
    slower: float = 1.0,
    prompt: float = 1.0,
    cached_before: float = 0.0,
    cached_after: float = 0.0,
    seed: int = 1,
) -> list[Analysis]:
    """Two builds of two endpoints each; from CHANGE_S on prompts are `prompt` times as long, builds
    slower.
    """
    chance = random.Random(seed)
    loop = Loop(interval_s=5.0, only=regression.analyze)
    names = {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}
    where = topology(names, builds=names)
    itl = {n: Counts(FINE) for n in names}
    ttft = {n: Counts(FINE) for n in names}
    tokens, prompts, cached = (dict.fromkeys(names, 0.0) for _ in range(3))
    analyses = []
    for t in range(5, END_S + 1, 5):
        after = t >= CHANGE_S
        for name, build in names.items():
            requests = chance.gauss(30, 3)
            length = 500.0 * (prompt if after else 1.0) * chance.gauss(1, 0.05)
            share = cached_after if after else cached_before
            factor = slower if after and slow_build in (build, "*") else 1.0
            computed = length * (1 - share)
            itl[name].add(factor * (0.015 + 10e-6 * computed) * chance.gauss(1, 0.03), 20 * requests)
            ttft[name].add(factor * (0.03 + 250e-6 * computed) * chance.gauss(1, 0.05), requests)
            tokens[name] += 20 * requests
            prompts[name] += requests * length
            cached[name] += requests * length * share
        rows = {
            n: {
                "generation_tokens": tokens[n],
                "prompt_tokens": prompts[n],
                "cached_prompt_tokens": cached[n],
                "itl": itl[n].snapshot(),
                "ttft": ttft[n].snapshot(),
                "requests_running": 10.0,
            }
            for n in names
        }
        analyses.append(loop.tick(frame(float(t), rows, where=where)))
    return analyses


def found(analyses: list[Analysis], slug: str) -> bool:
    return any(a.find(slug) for a in analyses)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_build_that_is_30_percent_slower_is_found_and_named(seed: int) -> None:
    analyses = run(slow_build="b", slower=1.3, seed=seed)
    assert not found([a for a in analyses if a.at < CHANGE_S], "latency-regression")
    last = analyses[-1].find("latency-regression")
    assert last is not None and last.layer is Layer.CHANGE
    why = " ".join(item.why for item in last.evidence)
    assert "build b is" in why and "slower than build a" in why
    ratio = max(item.observed or 0 for item in last.evidence)
    assert ratio == pytest.approx(1.3, abs=0.08)


def test_all_endpoints_slower_is_found_over_time() -> None:
    last = run(slow_build="*", slower=1.3)[-1].find("latency-regression")
    assert last is not None and last.since == pytest.approx(CHANGE_S, abs=45)


@pytest.mark.parametrize("seed", [1, 2])
def test_prompts_twice_as_long_are_a_mix_shift(seed: int) -> None:
    analyses = run(prompt=2.0, seed=seed)
    assert not found(analyses, "latency-regression")
    last = analyses[-1].find("mix-shift")
    assert last is not None and "computed prompt tokens per request rose" in last.summary


def test_colder_cache_is_a_mix_shift() -> None:
    analyses = run(cached_before=0.6, cached_after=0.1)
    assert not found(analyses, "latency-regression")
    last = analyses[-1].find("mix-shift")
    assert last is not None and "cached share" in last.summary


def test_nothing_changed_nothing_found() -> None:
    analyses = run()
    assert not found(analyses, "latency-regression") and not found(analyses, "mix-shift")


def test_find_rise_needs_a_lasting_rise() -> None:
    chance = np.random.default_rng(1)
    noise = chance.normal(0, 0.03, 60)
    step = noise + np.where(np.arange(60) >= 40, 0.3, 0.0)
    spike = noise + np.where((np.arange(60) >= 40) & (np.arange(60) < 46), 0.6, 0.0)
    shift = find_rise(step, 30)
    assert shift is not None and abs(shift.onset - 40) <= 1 and shift.effect == pytest.approx(0.3, abs=0.05)
    assert find_rise(spike, 30) is None
    assert find_rise(noise, 30) is None
    assert find_rise(-step, 30) is None


def test_false_alarms_are_rare_on_noise() -> None:
    chance = np.random.default_rng(7)
    alarms = sum(find_rise(chance.normal(0, 0.1, 60), 30) is not None for _ in range(300))
    assert alarms <= 3


def test_explained_credits_no_more_than_proportion_beyond_what_was_seen() -> None:
    y = np.concatenate([np.zeros(20), np.full(10, 1.5)])
    x = np.zeros((30, len(CONFOUNDERS)))
    x[20:, 0] = math.log(2)
    part = explained(y, x, 20, regression.BOUNDS, regression.OUTSIDE)
    assert part[-1] == pytest.approx(math.log(2))
    assert np.all(part[:20] == 0)


def test_histogram_helper_counts_edges_inclusive() -> None:
    assert histogram([0.5, 0.5]).share_at_most(0.5) == (1.0, 1.0)
