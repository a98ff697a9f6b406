from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.policies.registry import POLICIES, PolicyError, build
from fleetsim.policies.table import refreshed, table
from fleetsim.virtual.observation import EngineSeen, GatewaySeen, ReplicaSeen
from tests.fleetsim.policies.looks import Bench, scenario

EXPECTED = (
    "none static hpa-queue hpa-kv keda-waiting aibrix-kpa aibrix-apa wva-v1 wva-v2 dynamo envoy-defaults "
    "sre-throttling envoy-admission-control hpa-envoy"
)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "policies.md"


def test_every_policy_is_there_and_bears_its_name() -> None:
    assert " ".join(POLICIES) == EXPECTED
    for name, info in POLICIES.items():
        assert (info.name, build(name, scenario()).name) == (name, name)
        assert info.title and info.citation and info.defaults and info.missing and info.simplified and info.decides_by


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(PolicyError, match="expected a policy, found 'hpa': use one of none, static, hpa-queue"):
        build("hpa", scenario())


def test_the_page_has_the_table_of_the_registry() -> None:
    page = PAGE.read_text()
    assert refreshed(page) == page, "run `python -m fleetsim.policies.table docs/policies.md`"
    assert all(f"| `{name}`: " in page for name in POLICIES)


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="policies: begin"):
        refreshed("# Policies\n")
    assert all(row.count("|") == 7 for row in table().splitlines())


known = st.none() | st.floats(0, 1e6)
engines = st.builds(
    EngineSeen,
    scraped_at=st.just(0.0),
    kv_usage=st.none() | st.floats(0, 1),
    **dict.fromkeys([f for f in EngineSeen.__slots__ if f not in ("scraped_at", "kv_usage")], known),
)
states = st.sampled_from(["pending", "warming", "ready", "draining", "crashed"])
fleets = st.lists(st.tuples(states, st.none() | engines), max_size=8)
gateways = st.none() | st.floats(0, 1e7)


def at(now: float, engine: EngineSeen | None) -> EngineSeen | None:
    if engine is None:
        return None
    values: dict[str, Any] = {f: getattr(engine, f) for f in EngineSeen.__slots__}
    return EngineSeen(**values | {"scraped_at": now})


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=12, deadline=None)
@given(looks=st.lists(st.tuples(fleets, gateways), min_size=1, max_size=8), start=st.integers(2, 9))
def test_no_look_whatever_makes_a_policy_fail_or_leave_the_bounds(
    name: str, looks: list[tuple[list[tuple[str, EngineSeen | None]], float | None]], start: int
) -> None:
    bench = Bench(build(name, scenario()), replicas=start, bounds=(2, 9))
    for index, (fleet, requests) in enumerate(looks):
        now = index * 45.0
        pods = [ReplicaSeen(f"engine-{i}", state, 0.0, at(now, engine)) for i, (state, engine) in enumerate(fleet)]
        seen = None if requests is None else GatewaySeen(now, requests, requests, 0, 0, 0, 0, 0, 0, 0)
        # Controls refuses what is out of the bounds.
        assert 2 <= bench.look(now, pods, seen) <= 9


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_policy_that_is_told_nothing_raises_no_count(name: str) -> None:
    bench = Bench(build(name, scenario()), replicas=4)
    pods = [ReplicaSeen(f"engine-{i}", "ready", 0.0, EngineSeen(0.0)) for i in range(4)]
    for index in range(40):
        bench.look(index * 15.0, pods)
    assert bench.pool.wanted == {"static": 6, "keda-waiting": 1}.get(name, 4)
