from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.balancing import BOUNDED_LOAD, Endpoint, LeastRequest, PrefixHash, RoundRobin, balancer
from tests.fleetsim.virtual.gateway_parts import FakeClient, Rig


def endpoints(*actives: int, weights: tuple[float, ...] = ()) -> list[Endpoint]:
    rig = Rig(1)
    made = [Endpoint(f"engine-{i}", f"10.0.0.{i + 1}:8000", rig.ports[0]) for i in range(len(actives))]
    for endpoint, active in zip(made, actives, strict=True):
        endpoint.active = active
    for endpoint, weight in zip(made, weights, strict=False):
        endpoint.weight = weight
    return made


def asking(key: int | None = None) -> Attempt:
    prefix = () if key is None else ((key, 64), (7, 64))
    return Attempt(FakeClient(), None, prompt_tokens=500, output_tokens=100, prefix=prefix)


def picks(policy: RoundRobin | LeastRequest | PrefixHash, times: int) -> Counter[str]:
    return Counter(policy.pick(asking()).name for _ in range(times))


def test_two_random_choices_take_the_less_busy_unless_both_draws_fall_on_the_busy_one() -> None:
    found = picks(LeastRequest(endpoints(9, 3), random.Random(1)), 8000)
    assert found["engine-1"] / 8000 == pytest.approx(0.75, abs=0.02)  # 1 - 1/2 * 1/2


def test_equally_busy_endpoints_get_equal_shares() -> None:
    found = picks(LeastRequest(endpoints(2, 2, 2, 2), random.Random(1)), 8000)
    assert all(n / 8000 == pytest.approx(0.25, abs=0.02) for n in found.values())


def test_unequal_weights_share_by_weight_over_load() -> None:
    # Weights 100 and 50 with nothing and three in flight: 100/1 against 50/4.
    found = picks(LeastRequest(endpoints(0, 3, weights=(100, 50)), random.Random(1)), 900)
    assert found["engine-0"] == pytest.approx(800, abs=1)


def test_round_robin_spreads_turns_out() -> None:
    policy = RoundRobin(endpoints(0, 9, weights=(75, 25)))
    names = [policy.pick(asking()).name for _ in range(400)]
    assert Counter(names)["engine-1"] == pytest.approx(100, abs=1)
    assert all(1 <= names[i : i + 6].count("engine-1") <= 2 for i in range(390))


def test_round_robin_with_equal_weights_takes_turns() -> None:
    policy = RoundRobin(endpoints(5, 0, 0))
    assert [policy.pick(asking()).name for _ in range(6)] == ["engine-0", "engine-1", "engine-2"] * 2


def test_a_prompt_beginning_stays_where_it_is_and_few_move_when_an_endpoint_goes() -> None:
    members = endpoints(*[0] * 8)
    before = {k: PrefixHash(members, random.Random(1)).pick(asking(k)).name for k in range(400)}
    assert len(set(before.values())) == 8
    after = {k: PrefixHash(members[:-1], random.Random(2)).pick(asking(k)).name for k in range(400)}
    assert all(after[k] == before[k] for k in before if before[k] != "engine-7")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(0, 2**64))
def test_hashing_never_overloads(actives: list[int], key: int) -> None:
    members = endpoints(*actives)
    chosen = PrefixHash(members, random.Random(1)).pick(asking(key))
    assert chosen.active < math.ceil(BOUNDED_LOAD * (sum(actives) + 1) / len(actives))


def test_hashing_without_a_prefix_is_least_request() -> None:
    found = picks(PrefixHash(endpoints(9, 3), random.Random(1)), 4000)
    assert found["engine-1"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_policies_by_name() -> None:
    members = endpoints(0, 0)
    kinds = {
        name: type(balancer(name, members, random.Random(1))) for name in ("least_request", "round_robin", "prefix")
    }
    assert kinds == {"least_request": LeastRequest, "round_robin": RoundRobin, "prefix": PrefixHash}
