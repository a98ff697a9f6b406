"""Stable codes of the finding slugs. Both are a public contract: add, never renumber or rename."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    "saturated": "IS0101",
    "queue-growing": "IS0102",
    "engine-hung": "IS0103",
    "engine-down": "IS0104",
    "gauges-stale": "IS0105",
    "endpoint-outlier": "IS0106",
    "replica-imbalance": "IS0107",
    "cold-start": "IS0108",
    "vulnerable": "IS0201",
    "retry-storm-incipient": "IS0202",
    "retry-storm": "IS0203",
    "retry-storm-collapsed": "IS0204",
    "retry-storm-recovering": "IS0205",
    "latency-regression": "IS0301",
    "success-regression": "IS0302",
    "mix-shift": "IS0303",
    "requests-rejected": "IS0304",
    "requests-aborted": "IS0305",
    "cost-regression": "IS0306",
    "change-correlated": "IS0307",
    "demand-surge": "IS0308",
    "kv-pressure": "IS0401",
    "preemption-storm": "IS0402",
    "cache-collapse": "IS0403",
    "memory-bound": "IS0404",
    "compute-bound": "IS0405",
    "gpu-fault": "IS0501",
    "gpu-throttled": "IS0502",
    "gpu-missing": "IS0503",
    "proxy-limit": "IS0601",
    "network-slow": "IS0602",
    "target-unreachable": "IS0701",
    "telemetry-outage": "IS0702",
    "metric-contract": "IS0703",
    "unschedulable": "IS0801",
    "other-writer": "IS0802",
    "actuation-ineffective": "IS0803",
    "controller-inert": "IS0804",
}

SLUGS: Final[dict[str, str]] = {code: slug for slug, code in CODES.items()}


def resolve(name: str) -> tuple[str, str]:
    """(slug, code) of a slug or a code in any case; KeyError says what is accepted."""
    wanted = name.strip()
    if wanted.lower() in CODES:
        return wanted.lower(), CODES[wanted.lower()]
    if wanted.upper() in SLUGS:
        return SLUGS[wanted.upper()], wanted.upper()
    raise KeyError(
        f"expected a finding's slug or code such as saturated or IS0101, found {name!r}; see docs/findings.md"
    )
