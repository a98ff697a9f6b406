import pytest

from fleetsim.timing import Degradation, StepLoad, load_profile, step_time

DECODE = StepLoad(
    decode_sequences=32, decode_context=32 * 600, prefill_sequences=0, prefill_tokens=0, prefill_attention=0
)
PREFILL = StepLoad(
    decode_sequences=0,
    decode_context=0,
    prefill_sequences=1,
    prefill_tokens=2048,
    prefill_attention=2048**2 / 2,
)
MIXED = StepLoad(
    decode_sequences=31,
    decode_context=18_000,
    prefill_sequences=1,
    prefill_tokens=500,
    prefill_attention=125_000,
)


def test_decode_step_of_a_70b_model_on_four_h100() -> None:
    # By hand: 2.64 + (14.39^1.5 + 2.281^1.5)^(2/3) + 0.588 + 0.096 ms
    expected_ms = 2.64 + (14.39**1.5 + (0.07127 * 32) ** 1.5) ** (2 / 3) + 30.6e-6 * 19_200 + 0.003 * 32
    assert step_time(load_profile(), DECODE).duration_s == pytest.approx(expected_ms * 1e-3)
    assert 0.017 < step_time(load_profile(), DECODE).duration_s < 0.021


@pytest.mark.parametrize("load", [DECODE, PREFILL, MIXED])
def test_g_stretches_every_step(load: StepLoad) -> None:
    healthy, slow = (step_time(load_profile(), load, Degradation(g=g)) for g in (1.0, 1.7))
    assert slow.duration_s == pytest.approx(1.7 * healthy.duration_s)
    assert (slow.tensor_s, slow.dram_s) == (healthy.tensor_s, healthy.dram_s)  # the work stays the same


def test_slow_decode_leaves_prefill_alone_and_the_other_way_round() -> None:
    profile = load_profile()
    healthy = {load: step_time(profile, load).duration_s for load in (DECODE, PREFILL, MIXED)}
    decode, prefill = Degradation(g_decode=1.3), Degradation(g_prefill=1.3)
    assert step_time(profile, DECODE, decode).duration_s == pytest.approx(1.3 * healthy[DECODE])
    assert step_time(profile, PREFILL, decode).duration_s == healthy[PREFILL]
    assert step_time(profile, DECODE, prefill).duration_s == pytest.approx(healthy[DECODE])
    assert step_time(profile, PREFILL, prefill).duration_s == pytest.approx(1.3 * healthy[PREFILL])
    for degradation in (decode, prefill):
        assert healthy[MIXED] < step_time(profile, MIXED, degradation).duration_s < 1.3 * healthy[MIXED]


@pytest.mark.parametrize("gpu", ["A100-80", "H100", "H200", "B200"])
def test_no_gpu_is_busier_than_the_time_allows(gpu: str) -> None:
    profile = load_profile(gpu=gpu, gpus_per_replica=4)
    for load in (DECODE, PREFILL, MIXED):
        time = step_time(profile, load)
        assert 0 < time.tensor_s < time.duration_s
        assert 0 < time.dram_s < time.duration_s


def test_hbm_to_compute_ratio_follows_the_work() -> None:
    decode, prefill = (step_time(load_profile(), load) for load in (DECODE, PREFILL))
    assert decode.dram_s / decode.tensor_s > 5
    assert prefill.dram_s / prefill.tensor_s < 0.3


def test_unknown_profile_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"found Llama-3.1-70B bf16 on 3 x H100: use one of .*4 x H100"):
        load_profile(gpus_per_replica=3)
