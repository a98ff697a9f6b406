from __future__ import annotations

from actuators.dry_run import DryRunBackend
from actuators.model import Lever, LeverKey, Status
from tests.actuators.conftest import POOL, action


async def test_moves_in_memory_only_and_keeps_what_it_was_told() -> None:
    backend = DryRunBackend.from_options("dry", {"values": {"scale:default": 4}})
    scale = LeverKey(Lever.SCALE, POOL, POOL)
    assert [(r.known, r.value, r.ready) for r in await backend.read((scale,))] == [(True, 4.0, 4)]
    up = action(Lever.SCALE, POOL, 4.0, 5.0)
    first, second = await backend.apply(up, 101.0), await backend.apply(up, 102.0)
    assert first.status is second.status is Status.APPLIED
    assert backend.actions == [up], "an id is carried out once"
    assert [r.value for r in await backend.read((scale,))] == [5.0]


async def test_a_lever_never_seen_takes_the_decisions_word_then_conflicts() -> None:
    backend = DryRunBackend.from_options("dry", {})
    weight = action(Lever.WEIGHT, "127.0.0.1:1", 100.0, 50.0, "a1")
    assert (await backend.apply(weight, 101.0)).status is Status.APPLIED
    stale = action(Lever.WEIGHT, "127.0.0.1:1", 100.0, 20.0, "a2")
    outcome = await backend.apply(stale, 102.0)
    assert (outcome.status, outcome.readback) == (Status.CONFLICT, 50.0)


async def test_only_the_levers_it_was_given() -> None:
    backend = DryRunBackend.from_options("dry", {"levers": ["breaker"]})
    assert backend.levers == frozenset({Lever.BREAKER})
    outcome = await backend.apply(action(Lever.SCALE, POOL, 1.0, 2.0), 101.0)
    assert outcome.status is Status.FAILED
    await backend.close()
