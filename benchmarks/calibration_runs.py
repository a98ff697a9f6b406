"""The measured runs that the engine model is held to: what they ran on as far as it is known, and what they took."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetsim.timing import Profile, load_profile

HOST_S = 1e-3  # host overhead of a step, contained in the coefficient table's t0


class TraceError(ValueError):
    """A run that cannot be read."""


@dataclass(frozen=True)
class Modelled:
    """A measured run's model and hardware: its profile, and what the profile lacks if anything."""

    profile: Profile
    layers: int
    replicas: int = 1
    missing: str | None = None


@dataclass(frozen=True)
class Measured:
    """One run: (queued s, prompt tokens, output tokens) of each request, its latencies, and the engine's options."""

    name: str
    requests: tuple[tuple[float, int, int], ...]
    latencies: dict[str, list[float]]
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int | None
    reserve_full_prompt: bool


def modelled_runs() -> dict[str, Modelled]:
    """The measured runs' models by folder name. The Qwen3 profiles follow the formulas of fleetsim.timing."""
    pro = load_profile("Llama-3.1-8B bf16", "RTX PRO 6000", 1)
    bandwidth = pro.gpu.weight_read_efficiency * pro.gpu.hbm_tb_per_s * 1e12
    flops = pro.gpu.bf16_tflops * 1e12

    def scaled(
        model: str, gpus: int, read: float, active: float, head: float, kv: int, width: int, kv_tokens: int
    ) -> Profile:
        # Bytes of weights read a step and of the lm_head, active parameters a token, KV bytes a token, layers x
        # heads x head size; 0.79 and 0.4 of the peak as in the RTX PRO 6000's tables.
        return replace(
            pro,
            model=model,
            gpus_per_replica=gpus,
            t0_s=HOST_S + head / gpus / bandwidth,
            weights_s=read / gpus / bandwidth,
            token_s=2 * active / (gpus * 0.79 * flops),
            kv_s=kv / gpus / bandwidth,
            attention_s=4 * width / (gpus * 0.4 * flops),
            kv_tokens=kv_tokens,
            extrapolated=True,
        )

    dense = scaled("Qwen3-32B bf16", 2, 62.4e9, 31.2e9, 151_936 * 5120 * 2, 262_144, 64 * 64 * 128, 386_000)
    # A batch of dozens touches all experts; each of the two engines' GPUs reads its half of the weights.
    sparse = scaled("Qwen3-30B-A3B bf16", 1, 59.8e9 / 2, 2.9e9, 151_936 * 2048 * 2, 98_304, 48 * 32 * 128, 533_000)
    return {
        "RTXPRO6000_Llama-3.1-8B": Modelled(pro, 32),
        "RTX4090_Llama-3.1-8B": Modelled(load_profile("Llama-3.1-8B bf16", "RTX 4090", 1), 32),
        "RTXPRO6000_Qwen3-32B": Modelled(
            dense, 64, missing="kernel tables of the model; the tensor-parallel all-reduce over PCIe"
        ),
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": Modelled(
            sparse,
            48,
            replicas=2,
            missing="kernel tables of the model; expert routing and its all-to-all over PCIe; the lock step of the two "
            "data-parallel engines, taken as independent ones that get every other request",
        ),
    }


def read_run(folder: Path) -> Measured:
    """One folder of measurements; TraceError names the file and line."""
    rows = []
    path = folder / "requests.jsonl"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        row = _json(path, line, number)
        try:
            times = [float(row[k]) for k in ("queued_ts", "first_token_ts", "last_token_ts")]
            lengths = int(row["input_toks"]), int(row["output_toks"])
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}:{number}: expected lengths and times of a request, found {error}") from error
        if not (math.isfinite(sum(times)) and times == sorted(times) and min(lengths) >= 1):
            raise TraceError(f"{path}:{number}: expected queued <= first <= last token and lengths, found {row}")
        rows.append((times[0], times[1], times[2], *lengths))
    if not rows:
        raise TraceError(f"{path}: expected requests, found none: check the file")
    rows.sort()
    meta = _json(folder / "meta.json", (folder / "meta.json").read_text(), 1)
    try:
        seqs, budget = (int(meta["engine_kwargs"][k]) for k in ("max_num_seqs", "max_num_batched_tokens"))
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{folder / 'meta.json'}: expected the engine's options, found {error!r}") from error
    scheduler = meta.get("resolved_config", {}).get("scheduler_config", {})
    return Measured(
        name=folder.name,
        requests=tuple((queued - rows[0][0], prompt, output) for queued, _, _, prompt, output in rows),
        latencies={
            "ttft": [first - queued for queued, first, *_ in rows],
            "tpot": [(last - first) / (output - 1) for _, first, last, _, output in rows if output > 1],
            "e2e": [last - queued for queued, _, last, *_ in rows],
        },
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        kv_tokens=meta.get("kv_cache", {}).get("num_kv_tokens"),
        reserve_full_prompt=scheduler.get("scheduler_reserve_full_isl", True),
    )


def _json(path: Path, text: str, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{line + error.lineno - 1}: expected JSON, found {error.msg}") from error
    if not isinstance(found, dict):
        raise TraceError(f"{path}:{line}: expected an object, found {type(found).__name__}")
    return found
