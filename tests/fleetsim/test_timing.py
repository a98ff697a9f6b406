import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fleetsim.timing import Degradation, StepLoad, StepTimer, load_profile, step_time

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


@pytest.mark.parametrize("gpu", ["A100-80", "H100", "H200", "B200", "MI300X"])
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


def test_prefill_beside_it_slows_the_read_of_the_cache() -> None:
    plain, slowed = load_profile(), replace(load_profile(), mixed_kv_factor=1.4)
    for load in (DECODE, PREFILL):
        assert step_time(plain, load) == step_time(slowed, load)
    extra = step_time(slowed, MIXED).duration_s - step_time(plain, MIXED).duration_s
    assert extra == pytest.approx(0.4 * plain.kv_s * MIXED.decode_context)


def test_steps_of_one_batch_form_an_arithmetic_progression() -> None:
    timer = StepTimer(load_profile(), Degradation(g=1.3, g_decode=1.1))
    times = [timer.decode(20, 9000 + 20 * i) for i in range(5)]
    for earlier, later in pairwise(times):
        assert later - earlier == pytest.approx(timer.decode_increment(20))


def test_weights_of_the_layers_follow_from_the_time_of_their_read() -> None:
    # 70.6 and 8.03 billion parameters less embedding and lm_head, two bytes each.
    assert load_profile().weights_bytes == pytest.approx(2 * 68.5e9, rel=0.01)
    assert load_profile("Llama-3.1-8B bf16", "RTX 4090", 1).weights_bytes == pytest.approx(2 * 6.98e9, rel=0.01)


def test_measured_and_extrapolated_rows_are_told_apart() -> None:
    assert not load_profile("Llama-3.1-8B bf16", "RTX 4090", 1).extrapolated
    assert not load_profile().extrapolated
    for gpu in ("H200", "B200", "MI300X"):
        assert load_profile(gpu=gpu, gpus_per_replica=4).extrapolated
    assert load_profile("Llama-3.1-70B fp8", "H100", 4).extrapolated


@pytest.mark.parametrize(("seqs", "tokens"), [(64, 32), (0, 32)])
def test_batch_that_does_not_fit_its_budget_is_refused(seqs: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="raise max_num_batched_tokens"):
        replace(load_profile(), max_num_seqs=seqs, max_num_batched_tokens=tokens)


@pytest.mark.shared
def test_table_carries_every_row_of_the_reference() -> None:
    reference = Path(__file__).resolve().parents[2] / ".." / "shared" / "reference" / "serving-coefficients.json"
    if not reference.exists():
        pytest.skip("the reference table is not here")
    for row in json.loads(reference.read_text()):
        profile = load_profile(row["model"], row["gpu"], row["tp"])
        found = (profile.t0_s, profile.weights_s, profile.token_s, profile.kv_s, profile.attention_s)
        wanted = (row["t0_ms"], row["t_w_ms"], row["c_tok_us"] * 1e-3, row["c_kv_ns"] * 1e-6, row["c_att_ns"] * 1e-6)
        assert [1e3 * value for value in found] == pytest.approx(wanted)
        assert row["kv_tokens"] in (profile.kv_tokens, None)
