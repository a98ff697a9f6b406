import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.policies.dynamo_model import MAX_SAMPLES, AggregatedModel, Limits, Pass

LIMITS = Limits(max_num_batched_tokens=2048, max_num_seqs=32, max_kv_tokens=400_000)


def linear(prefill: float, kv: float) -> Pass:
    return Pass(prefill, kv, 0.010 + 50e-6 * prefill + 100e-9 * kv)


GRID = [linear(p, kv) for p in (0, 500, 1000, 2000) for kv in (0, 50_000, 100_000)]


def test_the_fit_recovers_a_linear_engine() -> None:
    model = AggregatedModel(LIMITS, GRID)
    assert model.wall_s(800.0, 30_000.0) == pytest.approx(0.010 + 0.040 + 0.003)


def test_too_few_samples_and_less_time_for_more_work_are_no_fit() -> None:
    assert not AggregatedModel(LIMITS, GRID[:4]).ready
    assert AggregatedModel(LIMITS, GRID[:5]).ready
    backwards = [Pass(p, kv, 0.2 - 1e-6 * p + 1e-7 * kv) for p in (0, 500, 1000) for kv in (0, 10, 1000)]
    assert not AggregatedModel(LIMITS, backwards).ready
    assert AggregatedModel(LIMITS, backwards).ttft_s(0.0, 0.0, 0.0) is None
    lighter = AggregatedModel(LIMITS, [Pass(p, kv, 0.2 + 1e-4 * p - 1e-9 * kv) for p in (0, 500) for kv in (0, 10, 99)])
    assert lighter.wall_s(100.0, 0.0) == lighter.wall_s(100.0, 1e6)


def test_ttft_is_chunked_by_the_token_budget() -> None:
    model = AggregatedModel(LIMITS, GRID)
    model.prompt_tokens.add(1000.0)
    one, full = 0.010 + 0.050, 0.010 + 50e-6 * 2048
    assert model.ttft_s(0.0, 0.0, 0.0) == pytest.approx(one)
    assert model.ttft_s(2 * 2048.0, 0.0, 0.0) == pytest.approx(2 * full + one)
    assert model.ttft_s(1048.0, 0.0, 0.0) == pytest.approx(full)
    assert model.ttft_s(1000.0, 0.0, 0.5) == pytest.approx(one)  # half of all is cached


def test_best_rate_by_littles_law_within_the_targets() -> None:
    model = AggregatedModel(LIMITS, GRID)
    best = model.best_rps(500.0, 150.0, ttft_s=10.0, itl_s=10.0, hit_rate=0.0)
    wall = 0.010 + 50e-6 * (32 * 500 / 150) + 100e-9 * 32 * 575
    assert best is not None and best.rps == pytest.approx(32 / (150 * wall))
    strict = model.best_rps(500.0, 150.0, ttft_s=10.0, itl_s=0.0125, hit_rate=0.0)
    assert strict is not None and strict.itl_s <= 0.0125 and strict.rps < best.rps
    beyond = model.best_rps(500.0, 150.0, ttft_s=10.0, itl_s=0.001, hit_rate=0.0)
    assert beyond is not None and beyond.rps == pytest.approx(1 / (150 * beyond.itl_s)) and beyond.itl_s > 0.001
    cached = model.best_rps(500.0, 150.0, ttft_s=10.0, itl_s=10.0, hit_rate=0.8)
    assert cached is not None and cached.rps > best.rps


def test_a_full_store_gives_up_the_oldest_of_its_fullest_cell() -> None:
    model = AggregatedModel(LIMITS, GRID)
    for _ in range(500):
        model.observe(linear(300.0, 20_000.0))
    # Traffic at one point has not pushed out what is known of others.
    assert model.wall_s(2000.0, 100_000.0) == pytest.approx(0.010 + 0.100 + 0.010)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e5), st.floats(0, 1e6), st.floats(1e-6, 1e3)), min_size=1, max_size=MAX_SAMPLES + 10
    ),
    st.floats(0, 1e6),
)
def test_more_work_never_takes_less_time_and_nothing_raises(
    samples: list[tuple[float, float, float]], more: float
) -> None:
    model = AggregatedModel(LIMITS)
    for sample in samples:
        model.observe(Pass(*sample))
    less = model.wall_s(100.0, 1000.0)
    if less is not None:
        assert (model.wall_s(100.0 + more, 1000.0) or 0.0) >= less > 0
        assert (model.ttft_s(more, 1000.0, 0.0) or 0.0) >= 0
