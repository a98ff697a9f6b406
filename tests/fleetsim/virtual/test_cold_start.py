import math
import statistics

import pytest

from fleetsim.timing import load_profile
from fleetsim.virtual.cold_start import ColdStarts, suggested_s

LARGE = load_profile("Llama-3.1-70B bf16", "H100", 4)
SMALL = load_profile("Llama-3.1-8B bf16", "H100", 1)


def test_suggested_cold_start_is_the_sum_of_its_parts() -> None:
    assert suggested_s(LARGE) == pytest.approx(55 + 20 + 90 + 30, abs=1)
    assert suggested_s(LARGE, compile_cached=True) == pytest.approx(112, abs=1)
    assert suggested_s(LARGE, "page_cache") == pytest.approx(14 + 20 + 90 + 30, abs=1)
    assert suggested_s(LARGE, "network", node_s=300, image_s=60) == pytest.approx(360 + 137 + 20 + 90 + 30, abs=1)
    assert suggested_s(SMALL) == pytest.approx(14 / 2.5 + 20 + 40 + 10, abs=1)


def test_no_spread_without_sigma() -> None:
    assert [ColdStarts(120.0, 0.0, 1).draw("engine-0") for _ in range(3)] == [120.0] * 3


def test_draws_are_lognormal_around_the_median() -> None:
    starts = ColdStarts(120.0, 0.3, 1)
    drawn = [starts.draw("engine-0") for _ in range(4000)]
    assert statistics.median(drawn) == pytest.approx(120, rel=0.03)
    assert statistics.stdev(math.log(d) for d in drawn) == pytest.approx(0.3, rel=0.05)


def test_each_replica_draws_on_its_own() -> None:
    alone, together = ColdStarts(120.0, 0.3, 1), ColdStarts(120.0, 0.3, 1)
    others = [together.draw("engine-1") for _ in range(5)]
    assert alone.draw("engine-0") == together.draw("engine-0") not in others
    assert ColdStarts(120.0, 0.3, 2).draw("engine-0") != ColdStarts(120.0, 0.3, 1).draw("engine-0")
