"""Replicas as the peers' controllers count them, and those whose metrics there are."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.virtual.observation import EngineSeen, Observation, ReplicaSeen

FRESH_S = 1.0


def status_replicas(seen: Observation) -> int:
    """`status.replicas`: pods that exist and are not being deleted."""
    return sum(r.state != "draining" for r in seen.replicas)


def engines(pods: Sequence[ReplicaSeen], now: float) -> dict[str, EngineSeen]:
    """Scrapes of this look, by replica.

    An older one is not used: Prometheus marks the series of a target stale as soon as a scrape of it fails, its
    look-back of five minutes is for what it was not told to be over; and AIBrix and Dynamo ask the engines themselves.
    """
    return {r.name: r.engine for r in pods if r.engine is not None and r.engine.scraped_at >= now - FRESH_S}


def bounded(desired: int, seen: Observation) -> int:
    return max(seen.minimum, min(desired, seen.maximum))
