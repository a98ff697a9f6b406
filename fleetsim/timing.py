"""Iteration time of a continuous-batching engine, and how busy its GPUs are meanwhile.

One engine step over N new tokens (prefill chunks plus one per decoding sequence), with K tokens of decoding
context, A = sum over prefill chunks of chunk * (already computed + chunk / 2) and B sequences, takes

    t = g * [ t0 + (T_W^p + (c_tok N)^p)^(1/p) + c_kv K m + c_att A + c_seq B ],   p = 1.5

T_W is the weight read, c_tok the dense compute (all-reduce included), c_kv the KV-cache read, c_att the
prefill attention, t0 the host and launch overhead. m is 1 in a step that only decodes; in one that also
carries prefill the attention kernels share the GPU and read the cache more slowly. The p-norm stands for the
soft corner of the roofline: fitted to measured kernel tables it errs 3-8 %, where a plain max() errs 6-15 %.
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
    """A model on a replica's GPUs. Times in seconds; `kv_tokens` is the KV cache's capacity.

    `mixed_kv_factor` is m of the formula, `extrapolated` says that no measured kernel stands behind the row.
    """

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
    mixed_kv_factor: float = 1.0
    sequence_s: float = SECONDS_PER_SEQUENCE
    extrapolated: bool = False

    def __post_init__(self) -> None:
        # vLLM refuses this too: every running sequence must get its token in every step.
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise ValueError(
                f"expected 1 <= max_num_seqs <= max_num_batched_tokens, found {self.max_num_seqs} and "
                f"{self.max_num_batched_tokens}: raise max_num_batched_tokens or lower max_num_seqs"
            )

    @property
    def num_blocks(self) -> int:
        return self.kv_tokens // self.block_size

    @property
    def weights_bytes(self) -> float:
        """Bytes of the layers' weights on all GPUs of the replica, from the time of their read."""
        return self.peak_weights_s * self.gpu.hbm_tb_per_s * 1e12 * self.gpus_per_replica

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


class StepTimer:
    """The formula for one profile and degradation, its constants at hand: both engines time their steps here.

    Successive decode-only steps of the same batch differ by `decode_increment`: their times form an
    arithmetic progression, because only the context grows, by one token a sequence and step.
    """

    __slots__ = ("_attention", "_decode", "_dense", "_kv", "_mixed_kv", "_peak_attention", "_peak_kv", "_peak_token",
                 "_peak_weights", "_prefill", "_sequence", "_t0", "_token", "_weights")  # fmt: skip

    def __init__(self, profile: Profile, degradation: Degradation = HEALTHY) -> None:
        self._t0 = profile.t0_s
        self._weights = profile.weights_s**ROOFLINE_EXPONENT
        self._token = profile.token_s
        self._kv = profile.kv_s
        self._mixed_kv = profile.kv_s * profile.mixed_kv_factor
        self._attention = profile.attention_s
        self._sequence = profile.sequence_s
        self._decode = degradation.g * degradation.g_decode
        self._prefill = degradation.g * degradation.g_prefill
        self._dense: dict[int, float] = {}  # by number of tokens: a batch takes few different ones
        self._peak_token = profile.peak_token_s
        self._peak_weights = profile.peak_weights_s
        self._peak_kv = KV_READ_EFFICIENCY * profile.kv_s
        self._peak_attention = ATTENTION_EFFICIENCY * profile.attention_s

    def _fixed(self, tokens: int) -> float:
        found = self._dense.get(tokens)
        if found is None:
            dense: float = (self._weights + (self._token * tokens) ** ROOFLINE_EXPONENT) ** (1 / ROOFLINE_EXPONENT)
            found = self._dense[tokens] = self._t0 + dense
        return found

    def decode(self, sequences: int, context: int) -> float:
        """Seconds of a step that decodes one token for each of `sequences` with `context` tokens in all."""
        return self._decode * (self._fixed(sequences) + self._kv * context + self._sequence * sequences)

    def decode_increment(self, sequences: int) -> float:
        """Seconds by which each decode-only step is longer than the one before it."""
        return self._decode * self._kv * sequences

    def step(self, sequences: int, context: int, prefills: int, prefill_tokens: int, attention: float) -> float:
        """Seconds of a step; a decode-only one is exactly `g * g_decode` times the healthy one."""
        if not prefills:
            return self.decode(sequences, context)
        whole = (
            self._fixed(sequences + prefill_tokens)
            + self._mixed_kv * context
            + self._attention * attention
            + self._sequence * (sequences + prefills)
        )
        if not sequences:
            return self._prefill * whole
        decode = self._fixed(sequences) + self._kv * context + self._sequence * sequences
        return self._decode * decode + self._prefill * (whole - decode)

    def tensor(self, tokens: int, attention: float) -> float:
        """Seconds of tensor work at peak in so many new tokens and so much prefill attention."""
        return self._peak_token * tokens + self._peak_attention * attention

    def dram(self, steps: int, context: float) -> float:
        """Seconds of HBM traffic at peak: weights once a step, `context` tokens of cache in all of them."""
        return self._peak_weights * steps + self._peak_kv * context

    def time(self, load: StepLoad, factor: float = 1.0) -> StepTime:
        """Everything about one step. `factor` stretches its time, not its work."""
        duration = self.step(
            load.decode_sequences,
            load.decode_context,
            load.prefill_sequences,
            load.prefill_tokens,
            load.prefill_attention,
        )
        return StepTime(
            duration_s=factor * duration,
            tensor_s=self.tensor(load.decode_sequences + load.prefill_tokens, load.prefill_attention),
            dram_s=self.dram(1, load.decode_context),
        )


def step_time(profile: Profile, load: StepLoad, degradation: Degradation = HEALTHY) -> StepTime:
    """Time of one engine step."""
    return StepTimer(profile, degradation).time(load)


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
                mixed_kv_factor=row.get("mixed_kv_factor", 1.0),
                extrapolated=row["extrapolated"],
            )
    known = ", ".join(f"{r['model']} on {r['gpus_per_replica']} x {r['gpu']}" for r in table["profiles"])
    raise ValueError(
        f"expected a profile of coefficients.json, found {model} on {gpus_per_replica} x {gpu}: use one of {known}"
    )
