"""Metric names that exist, by where they were seen."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rules.export import FOLDER, RULE_FILES

ROOT = Path(__file__).parents[2]
VLLM_BODY = ROOT / "tests" / "fixtures" / "live" / "vllm-0.32-busy.prom"
ENVOY_BODY = Path(__file__).parent / "fixtures" / "envoy-1.40.prom"

# names that 0.32 has no more, and the last release that exposed them (histograms with their suffixes)
VLLM_RETIRED = {
    "vllm:gpu_cache_usage_perc": ("gauge", "0.11"),
    "vllm:gpu_prefix_cache_queries_total": ("counter", "0.11"),
    "vllm:gpu_prefix_cache_hits_total": ("counter", "0.11"),
    "vllm:time_per_output_token_seconds": ("histogram", "0.13"),
}
# dcgm-exporter 4.5 to 4.8, fields of the default counters file that are used here
DCGM_DEFAULT = {
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
}
PROMETHEUS_OWN = {"up", "ALERTS"}


def typed(body: str) -> dict[str, str]:
    """Series name -> type, with the suffixes of histograms."""
    return _with_suffixes(re.findall(r"^# TYPE (\S+) (\S+)", body, re.MULTILINE))


def documented() -> dict[str, str]:
    """The agent's own metrics, from the table in docs/metrics.md."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return _with_suffixes(re.findall(r"^\| `(inferostat_\w+)` \| (\w+) \|", text, re.MULTILINE))


@cache
def rules(file: str) -> list[dict[str, Any]]:
    """Recording and alerting rules of one file."""
    groups = yaml.safe_load((FOLDER / file).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def recorded() -> set[str]:
    """Names that the recording rules write."""
    return {rule["record"] for file in RULE_FILES for rule in rules(file) if "record" in rule}


@cache
def scraped() -> dict[str, str]:
    """Everything a Prometheus gets from engines, devices, gateway and agent."""
    retired = _with_suffixes([(name, kind) for name, (kind, _) in VLLM_RETIRED.items()])
    return {
        **typed(VLLM_BODY.read_text(encoding="utf-8")),
        **retired,
        **typed(ENVOY_BODY.read_text(encoding="utf-8")),
        **dict.fromkeys(DCGM_DEFAULT, "gauge"),
        **documented(),
    }


def _with_suffixes(families: list[tuple[str, str]]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, kind in families:
        if kind == "histogram":
            names |= {f"{name}_{suffix}": "counter" for suffix in ("bucket", "sum", "count")}
        else:
            names[name] = kind
    return names
