"""Codes, their documentation, merging and the diagnosis document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analyzers.codes import CODES, SLUGS, resolve
from analyzers.diagnosis import diagnose
from analyzers.model import Analysis, Evidence, Finding, Layer, Scope, ScopeKind, Severity
from analyzers.registry import merge

DOCS = Path(__file__).parents[2] / "docs" / "findings.md"


def make(
    slug: str,
    name: str = "e",
    kind: ScopeKind = ScopeKind.ENDPOINT,
    *,
    confidence: float = 0.9,
    severity: Severity = Severity.WARNING,
    layer: Layer = Layer.QUEUE,
) -> Finding:
    evidence = (Evidence("s", float("inf"), None, "why"),)
    return Finding(slug, CODES[slug], severity, Scope(kind, name), 1.0, confidence, f"{slug}!", layer, evidence)


def test_every_finding_is_documented_once_with_its_code() -> None:
    sections = re.findall(r"^## (\S+)\n\nCode (IS\d{4})\.$", DOCS.read_text(), flags=re.M)
    assert sections == list(CODES.items())
    for part in DOCS.read_text().split("\n## ")[1:]:
        assert "**Meaning.**" in part and "**Evidence.**" in part and "**Runbook.**" in part, part[:40]


def test_codes_are_unique_and_resolve_both_ways() -> None:
    assert len(SLUGS) == len(CODES)
    assert resolve("IS0101") == resolve("saturated") == resolve("is0101") == ("saturated", "IS0101")
    with pytest.raises(KeyError, match="expected a finding's slug or code"):
        resolve("nothing")


def test_every_slug_used_by_an_analyzer_has_a_code() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parents[2].glob("analyzers/*.py"))
    used = set(re.findall(r'finding\(\s*"([a-z-]+)"', text))
    assert used and used <= set(CODES)


def test_merge_keeps_the_surer_twin_and_drops_what_rests_on_unbelievable_gauges() -> None:
    kept = merge([make("saturated", "a", confidence=0.5), make("saturated", "a"), make("saturated", "b"),
                  make("kv-pressure", "b"), make("engine-hung", "b"), make("gauges-stale", "b")])  # fmt: skip
    assert [(f.slug, f.scope.name, f.confidence) for f in kept] == [
        ("engine-hung", "b", 0.9),
        ("saturated", "a", 0.9),
    ]


def test_causes_outrank_symptoms_and_the_document_is_strict_json() -> None:
    document = diagnose(
        Analysis(2.0, (make("saturated", severity=Severity.CRITICAL), make("kv-pressure", layer=Layer.MEMORY)))
    )
    assert document["verdict"]["slug"] == "kv-pressure"  # type: ignore[index]
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["findings"][0]["evidence"][0]["observed"] is None


def test_two_causes_as_likely_are_no_verdict() -> None:
    both = (make("kv-pressure", layer=Layer.MEMORY), make("endpoint-outlier", layer=Layer.DECODE))
    verdict = diagnose(Analysis(2.0, both))["verdict"]
    assert verdict["slug"] is None and verdict["layer"] == "unknown"  # type: ignore[index]
    assert "does not decide" in verdict["why"]  # type: ignore[index]


def test_information_alone_needs_no_explanation() -> None:
    document = diagnose(Analysis(2.0, (make("vulnerable", severity=Severity.INFO),)))
    assert document["hypotheses"] == [] and document["verdict"]["slug"] is None  # type: ignore[index]
