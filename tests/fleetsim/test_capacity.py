import random

import pytest

from fleetsim.capacity import capacity
from fleetsim.timing import Degradation, load_profile
from fleetsim.workload import Workload


def test_four_engines_serve_about_35_requests_a_second() -> None:
    found = capacity(load_profile(), Workload())
    assert 4 * found.requests_per_s == pytest.approx(34.9, rel=0.05)
    assert found.step_s > 0.020  # inter-token latency of a full batch


def test_capacity_falls_with_speed_and_hardly_depends_on_the_draw() -> None:
    healthy, other = (capacity(load_profile(), Workload(), seed=s).requests_per_s for s in (0, 1))
    assert other == pytest.approx(healthy, rel=0.02)
    slow = capacity(load_profile(), Workload(), Degradation(g=1.7)).requests_per_s
    assert slow == pytest.approx(healthy / 1.7, rel=0.02)


def test_hbm_to_compute_ratio_crosses_one_between_decode_and_prefill() -> None:
    decode = capacity(load_profile(), Workload((128, 128), (512, 512)), measured_requests=200)
    prefill = capacity(load_profile(), Workload((4000, 4000), (8, 8)), measured_requests=200)
    assert decode.dram_active / decode.tensor_active > 4
    assert prefill.dram_active / prefill.tensor_active < 0.25


def test_lengths_stay_in_their_bounds_and_stretch() -> None:
    rng = random.Random(1)
    plain = [Workload().sample(rng) for _ in range(500)]
    assert min(p for p, _ in plain) >= 300 and max(p for p, _ in plain) <= 700
    assert min(o for _, o in plain) >= 100 and max(o for _, o in plain) <= 200
    doubled = [Workload().sample(random.Random(i), prompt_scale=2.0) for i in range(50)]
    single = [Workload().sample(random.Random(i)) for i in range(50)]
    assert doubled == [(2 * p, o) for p, o in single]
