"""States of real engines, recorded: what diagnose says after six scrapes a second apart."""

from __future__ import annotations

from typing import Any, cast

import pytest

from analyzers.diagnosis import diagnose
from tests.analyzers.live import replay


def numbered(state: str, first: int, last: int) -> list[str | None]:
    return [f"{state}-{number:02d}" for number in range(first, last + 1)]


def verdict(bodies: list[str | None]) -> dict[str, Any]:
    return cast(dict[str, Any], diagnose(replay(bodies)))


def test_idle_engine_has_no_finding() -> None:
    document = verdict(["idle-after"] * 6)
    assert document["findings"] == []
    assert document["verdict"]["slug"] is None and document["verdict"]["layer"] == "unknown"


@pytest.mark.parametrize(
    ("bodies", "slug", "layer"),
    [
        (numbered("overload", 5, 10), "saturated", "queue"),
        (numbered("kvtight", 2, 7), "kv-pressure", "memory"),
        (["crash-01", "crash-02", "crash-03", None, None, None], "engine-down", "decode"),
    ],
)
def test_states_are_told_apart(bodies: list[str | None], slug: str, layer: str) -> None:
    document = verdict(bodies)
    assert (document["verdict"]["slug"], document["verdict"]["layer"]) == (slug, layer)
    assert document["findings"][0]["slug"] == slug
    assert document["hypotheses"][0]["slug"] == slug


def test_frozen_gauges_are_no_more_than_likely_a_hang() -> None:
    document = verdict(numbered("hang", 0, 5))
    assert document["findings"][0]["slug"] in {"engine-hung", "gauges-stale"}
    assert all(found["confidence"] <= 0.7 for found in document["findings"])
    assert document["verdict"]["confidence"] <= 0.7
    assert {h["slug"] for h in document["hypotheses"]} == {"engine-hung", "gauges-stale"}


def test_busy_engine_is_neither_hung_nor_stale() -> None:
    for state, first, last in (("overload", 5, 10), ("kvtight", 2, 7)):
        found = {f["slug"] for f in verdict(numbered(state, first, last))["findings"]}
        assert not found & {"engine-hung", "gauges-stale", "engine-down"}
