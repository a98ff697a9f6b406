"""Iteration time of a continuous-batching engine, and how busy its GPUs are meanwhile.

One engine step over N new tokens (prefill chunks plus one per decoding sequence), with K tokens of decoding
context, A = sum over prefill chunks of chunk * (already computed + chunk / 2) and B sequences, takes

    t = g * [ t0 + (T_W^p + (c_tok N)^p)^(1/p) + c_kv K + c_att A + c_seq B ],   p = 1.5

T_W is the weight read, c_tok the dense compute (all-reduce included), c_kv the KV-cache read, c_att the
prefill attention, t0 the host and launch overhead. The p-norm stands for the soft corner of the roofline:
fitted to measured kernel tables it errs 3-8 %, where a plain max() errs 6-15 %.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

ROOFLINE_EXPONENT = 1.5
SECONDS_PER_SEQUENCE = 3e-6
# Shares of the peak that the KV read and the prefill attention reach in the kernels the coefficients come
# from: a term's time multiplied by its share is what the memory or the tensor pipes would need at their peak.
KV_READ_EFFICIENCY = 0.8
ATTENTION_EFFICIENCY = 0.4


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its datasheet and its driver describe it."""

    name: str
    hbm_tb_per_s: float
    bf16_tflops: float
    weight_read_efficiency: float
    hbm_mib: int
    sm_clock_mhz: int
    idle_w: float
    max_w: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A model on a replica's GPUs. Times in seconds; `kv_tokens` is the KV cache's capacity."""

    model: str
    gpu: Gpu
    gpus_per_replica: int
    t0_s: float
    weights_s: float
    token_s: float
    kv_s: float
    attention_s: float
    kv_tokens: int
    block_size: int = 16
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048

    @property
    def num_blocks(self) -> int:
        return self.kv_tokens // self.block_size

    @property
    def peak_weights_s(self) -> float:
        """Seconds of HBM traffic at peak bandwidth that one read of the weights stands for."""
        return self.weights_s * self.gpu.weight_read_efficiency

    @property
    def peak_token_s(self) -> float:
        """Seconds of tensor work at peak that one token through all layers stands for.

        Two FLOPs a weight, and the weights are known from their read: 2 P / FLOPS with P = T_W eta BW / 2.
        """
        return self.peak_weights_s * self.gpu.hbm_tb_per_s / self.gpu.bf16_tflops


@dataclass(frozen=True, slots=True)
class Degradation:
    """Multipliers of the iteration time: the whole step, its decode part, what prefill adds to it."""

    g: float = 1.0
    g_decode: float = 1.0
    g_prefill: float = 1.0


HEALTHY = Degradation()


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one engine step computes, in tokens and sequences."""

    decode_sequences: int
    decode_context: int
    prefill_sequences: int
    prefill_tokens: int
    prefill_attention: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds a step takes, and for how many of them tensor pipes and HBM would be busy at their peak."""

    duration_s: float
    tensor_s: float
    dram_s: float


def _undisturbed(profile: Profile, tokens: int, context: int, attention: float, sequences: int) -> float:
    dense = (profile.weights_s**ROOFLINE_EXPONENT + (profile.token_s * tokens) ** ROOFLINE_EXPONENT) ** (
        1 / ROOFLINE_EXPONENT
    )
    return float(
        profile.t0_s
        + dense
        + profile.kv_s * context
        + profile.attention_s * attention
        + SECONDS_PER_SEQUENCE * sequences
    )


def step_time(profile: Profile, load: StepLoad, degradation: Degradation = HEALTHY) -> StepTime:
    """Time of one engine step. A decode-only step is exactly `g * g_decode` times the healthy one."""
    tokens = load.decode_sequences + load.prefill_tokens
    whole = _undisturbed(
        profile,
        tokens,
        load.decode_context,
        load.prefill_attention,
        load.decode_sequences + load.prefill_sequences,
    )
    decode = (
        _undisturbed(profile, load.decode_sequences, load.decode_context, 0.0, load.decode_sequences)
        if load.decode_sequences
        else 0.0
    )
    duration = degradation.g * (degradation.g_decode * decode + degradation.g_prefill * (whole - decode))
    return StepTime(
        duration_s=duration,
        tensor_s=profile.peak_token_s * tokens + ATTENTION_EFFICIENCY * profile.attention_s * load.prefill_attention,
        dram_s=profile.peak_weights_s + KV_READ_EFFICIENCY * profile.kv_s * load.decode_context,
    )


@cache
def load_profile(model: str = "Llama-3.1-70B bf16", gpu: str = "H100", gpus_per_replica: int = 4) -> Profile:
    """The profile of a model on a number of GPUs; ValueError names the choices when there is no such row."""
    table = json.loads(resources.files("fleetsim").joinpath("coefficients.json").read_text())
    for row in table["profiles"]:
        if (row["model"], row["gpu"], row["gpus_per_replica"]) == (model, gpu, gpus_per_replica):
            return Profile(
                model=model,
                gpu=Gpu(**table["gpus"][gpu]),
                gpus_per_replica=gpus_per_replica,
                t0_s=row["t0_ms"] * 1e-3,
                weights_s=row["t_w_ms"] * 1e-3,
                token_s=row["c_tok_us"] * 1e-6,
                kv_s=row["c_kv_ns"] * 1e-9,
                attention_s=row["c_att_ns"] * 1e-9,
                kv_tokens=row["kv_tokens"],
            )
    known = ", ".join(f"{r['model']} on {r['gpus_per_replica']} x {r['gpu']}" for r in table["profiles"])
    raise ValueError(
        f"expected a profile of coefficients.json, found {model} on {gpus_per_replica} x {gpu}: use one of {known}"
    )
