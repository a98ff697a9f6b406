"""Plays a scenario in virtual time under one policy of the peers', from its first second to its last."""

from __future__ import annotations

from fleetsim.policies.policy import Policy
from fleetsim.policies.registry import build
from fleetsim.scenario import Scenario
from fleetsim.virtual.garbage import collected_seldom
from fleetsim.virtual.result import Run
from fleetsim.virtual.world import World


def play(
    scenario: Scenario,
    policy: str | Policy,
    *,
    seed: int | None = None,
    load: float | None = None,
    duration_s: float | None = None,
    g: float = 1.0,
) -> Run:
    """The run, over. `policy` is a registered name or a policy of one's own; what is None is the scenario's."""
    playing = build(policy, scenario) if isinstance(policy, str) else policy
    world = World(playing.prepare(scenario), seed=seed, load=load, duration_s=duration_s, g=g)
    with collected_seldom():
        for tick in range(int(world.duration_s / playing.period_s)):
            world.run_until(tick * playing.period_s)
            playing.decide(world.observe(), world.controls)
        world.run_until(world.duration_s)
    return world.finish(playing.name)
