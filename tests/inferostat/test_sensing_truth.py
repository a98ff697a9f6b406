"""What the agent senses, against what the embedded fleet knows of itself: short versions of benchmarks.sensing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.sensing import dollars, first_told, scaling, settled_ratio
from benchmarks.watching import Sample, Watched, variant, watch

PRICE_USD_PER_HOUR = 4 * 2.95  # of a replica: four GPUs
SECONDS_PER_HOUR = 3600.0


async def ratio(name: str, folder: Path) -> float | None:
    path = variant(name, folder, engines=1, load=0.6)
    watched = await watch(str(path), folder, duration_s=11.0)
    return settled_ratio(watched.samples)


@pytest.mark.component
async def test_decode_is_bound_by_memory_and_prefill_by_compute(tmp_path: Path) -> None:
    decode, prefill = await asyncio.gather(
        ratio("decode-heavy", tmp_path / "decode"), ratio("prefill-heavy", tmp_path / "prefill")
    )
    print(f"HBM/compute ratio: decode-heavy {decode}, prefill-heavy {prefill}")
    assert decode is not None
    assert prefill is not None
    assert decode > 1.0 > prefill


@pytest.mark.component
async def test_dollars_agree_with_the_fleets_own_log(tmp_path: Path) -> None:
    path = variant("steady", tmp_path, engines=2, load=0.3, cold_start_s=3.0)
    also = scaling(((3.0, 4), (8.0, 2)))
    watched = await watch(str(path), tmp_path, duration_s=14.0, interval_s=0.25, also=also)
    ours, truth = dollars(watched)
    print(f"{ours:.5f} USD by the agent, {truth:.5f} by the fleet: {ours / truth - 1:+.2%}")
    seconds = watched.samples[-1].at - watched.samples[0].at
    assert truth > 1.2 * 2 * PRICE_USD_PER_HOUR * seconds / SECONDS_PER_HOUR, "the new replicas were in the bill"
    assert ours == pytest.approx(truth, rel=0.01)


def sample(at: float, cost: float | None = None, ratio: float | None = None, **findings: str) -> Sample:
    return Sample(at, cost, ratio, findings)


def transition(at: float, to: str) -> dict[str, object]:
    return {"at": at, "replica": "engine-0", "to": to, "gpus": 4, "price_usd_per_gpu_hour": 2.95}


def test_a_cost_is_billed_from_cycle_to_cycle() -> None:
    log = (transition(0.0, "ready"), transition(1800.0, "stopped"))
    samples = (sample(0.0, 11.8), sample(1800.0, 0.0), sample(3600.0, 0.0))
    assert dollars(Watched(0.0, samples, log)) == pytest.approx((5.9, 5.9))


def test_an_unknown_cost_is_not_billed_as_nothing() -> None:
    with pytest.raises(ValueError, match="expected a cost at every cycle, found none at 1"):
        dollars(Watched(0.0, (sample(1.0), sample(2.0, 11.8)), ()))


def test_the_ratio_is_taken_from_where_the_run_has_settled() -> None:
    samples = [sample(0.0, ratio=9.0), sample(1.0, ratio=9.0), sample(2.0), sample(3.0, ratio=2.0)]
    assert settled_ratio(samples) == 2.0
    assert settled_ratio([sample(0.0, ratio=9.0), sample(1.0)]) is None


def test_a_finding_is_timed_from_the_clients_start() -> None:
    samples = (sample(11.0), sample(12.0, saturated="full"), sample(13.0, saturated="fuller"))
    watched = Watched(10.0, samples, ())
    assert first_told(watched, "saturated") == (2.0, "full")
    assert first_told(watched, "mix-shift") is None
