"""From findings to a verdict with competing hypotheses, or to "unknown" where they do not decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from analyzers.model import Analysis, Evidence, Finding, Layer, Severity

SCHEMA_VERSION = 1
# Abstain below this share of the belief, or when the second hypothesis is this close.
LEAST_SHARE, LEAST_MARGIN = 0.5, 0.15
# Belief left for a cause that no analyzer knows.
UNKNOWN_BELIEF = 0.3

# How far up the causal chain a finding stands: causes first, then what they lead to. A symptom is explained
# by a cause beside it; alone it is the best there is.
CAUSE: Final[Mapping[str, int]] = {
    "engine-down": 5,
    "engine-hung": 5,
    "gauges-stale": 5,
    "gpu-fault": 5,
    "retry-storm-collapsed": 4,
    "retry-storm": 4,
    "retry-storm-incipient": 4,
    "telemetry-outage": 4,
    "target-unreachable": 4,
    "kv-pressure": 3,
    "latency-regression": 3,
    "endpoint-outlier": 3,
    "retry-storm-recovering": 3,
    "metric-contract": 3,
    "success-regression": 2,
    "demand-surge": 2,
    "preemption-storm": 2,
    "replica-imbalance": 2,
    "saturated": 2,
    "mix-shift": 1,
    "queue-growing": 1,
    "requests-rejected": 1,
    "requests-aborted": 1,
}

# What the same evidence could also mean; it takes the belief that the finding is not sure of.
_RIVALS: Final[Mapping[str, tuple[str, Layer, str]]] = {
    "engine-hung": (
        "gauges-stale",
        Layer.TELEMETRY,
        "the gauges may be left over from cancelled work; a probe or arrivals at the gateway would tell",
    ),
    "gauges-stale": (
        "engine-hung",
        Layer.DECODE,
        "the engine may be hung without being asked; a probe would tell",
    ),
    "engine-down": (
        "target-unreachable",
        Layer.NETWORK,
        "the path to it may be cut while it still serves; the gateway's view would tell",
    ),
    "target-unreachable": ("engine-down", Layer.UNKNOWN, "it may be down; the gateway's view would tell"),
}


def diagnose(analysis: Analysis) -> dict[str, object]:
    """The document of `inferostat diagnose -o json`: verdict, hypotheses, findings, recommendations.

    verdict.slug is None and its layer `unknown` with nothing to explain, or where nothing decides.
    """
    findings = ranked(analysis)
    hypotheses = _hypotheses(findings)
    return {
        "schema_version": SCHEMA_VERSION,
        "at": analysis.at,
        "verdict": _verdict(findings, hypotheses),
        "hypotheses": hypotheses,
        "findings": [finding_document(found) for found in findings],
        "recommendations": _recommendations(findings),
    }


def ranked(analysis: Analysis) -> list[Finding]:
    """Findings by what explains most: causes before symptoms, then severity; information last."""
    return sorted(
        analysis.findings,
        key=lambda f: (
            f.severity == Severity.INFO,
            -CAUSE.get(f.slug, 0),
            -f.severity,
            -f.confidence,
            f.scope,
            f.slug,
        ),
    )


def _hypotheses(findings: list[Finding]) -> list[dict[str, object]]:
    """Causes and their beliefs (one with `unknown`): each weighs by its place and its confidence."""
    weights: dict[tuple[str, Layer], tuple[float, Finding, str]] = {}
    serious = [found for found in findings if found.severity > Severity.INFO]
    top = max((CAUSE.get(found.slug, 0) for found in serious), default=0)
    for found in serious:
        # Each step down the chain is a symptom of the step above more often than a cause beside it.
        weight = found.confidence * 4.0 ** (CAUSE.get(found.slug, 0) - top)
        _raise(weights, (found.slug, found.layer), weight, found, found.summary)
        rival = _RIVALS.get(found.slug)
        if rival is not None and rival[0] not in {other.slug for other in serious}:
            slug, layer, why = rival
            _raise(
                weights,
                (slug, layer),
                weight * (1 - found.confidence) / max(found.confidence, 0.1),
                found,
                why,
            )
    if not weights:
        return []
    total = sum(weight for weight, _, _ in weights.values()) + UNKNOWN_BELIEF * (1 - max(f.confidence for f in serious))
    hypotheses: list[dict[str, object]] = [
        {
            "slug": slug,
            "layer": layer.value,
            "belief": round(weight / total, 3),
            "scope": str(found.scope),
            "why": why,
        }
        for (slug, layer), (weight, found, why) in sorted(weights.items(), key=lambda item: -item[1][0])
    ]
    return hypotheses


def _raise(
    weights: dict[tuple[str, Layer], tuple[float, Finding, str]],
    key: tuple[str, Layer],
    weight: float,
    found: Finding,
    why: str,
) -> None:
    if key not in weights or weights[key][0] < weight:
        weights[key] = (weight, found, why)


def _verdict(findings: list[Finding], hypotheses: list[dict[str, object]]) -> dict[str, object]:
    if not hypotheses:
        return {
            "layer": Layer.UNKNOWN.value,
            "slug": None,
            "confidence": 0.0,
            "why": "nothing was found that needs explaining",
        }
    first = hypotheses[0]
    belief = float(str(first["belief"]))
    second = float(str(hypotheses[1]["belief"])) if len(hypotheses) > 1 else 0.0
    lead = next(found for found in findings if found.slug == first["slug"])
    if belief < LEAST_SHARE or belief - second < LEAST_MARGIN:
        return {
            "layer": Layer.UNKNOWN.value,
            "slug": None,
            "confidence": round(belief, 3),
            "why": (
                f"the evidence does not decide between {first['slug']} and "
                f"{hypotheses[1]['slug'] if len(hypotheses) > 1 else 'a cause not known'}"
            ),
        }
    return {
        "layer": first["layer"],
        "slug": first["slug"],
        "confidence": round(min(belief, lead.confidence), 3),
        "why": lead.summary,
    }


def finding_document(found: Finding) -> dict[str, object]:
    """One finding as it appears in every JSON document; numbers that are not there are null."""
    return {
        "id": found.id,
        "code": found.code,
        "slug": found.slug,
        "severity": found.severity.name.lower(),
        "scope": {"kind": found.scope.kind.value, "name": found.scope.name},
        "pool": found.pool,
        "since": found.since,
        "confidence": round(found.confidence, 3),
        "layer": found.layer.value,
        "summary": found.summary,
        "evidence": [evidence_document(item) for item in found.evidence],
    }


def evidence_document(item: Evidence) -> dict[str, object]:
    return {
        "signal": item.signal,
        "observed": _number(item.observed),
        "expected": _number(item.expected),
        "unit": item.unit,
        "why": item.why,
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _recommendations(findings: list[Finding]) -> list[dict[str, object]]:
    """The advice of the findings, the best explained first, each lever once per pool or scope."""
    seen: set[tuple[str, str]] = set()
    out: list[dict[str, object]] = []
    for found in findings:
        for advice in found.advice:
            key = (advice.lever, str(found.scope))
            if key in seen:
                continue
            seen.add(key)
            out.append(
                {
                    "lever": advice.lever,
                    "optimisation": advice.optimisation.value,
                    "text": advice.text,
                    "scope": str(found.scope),
                    "because": found.slug,
                }
            )
    return out
