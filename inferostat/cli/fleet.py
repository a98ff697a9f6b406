"""What the agent is told of the embedded fleet, and how the command line runs coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fleetsim.conductor import Embedded
from fleetsim.file_sd import POOL
from fleetsim.scenario import Scenario
from inferostat.embedded import FleetSetup

T = TypeVar("T")


def setup(running: Embedded, scenario: Scenario, port: int = 0, levers: frozenset[str] | None = None) -> FleetSetup:
    """The configuration's view of a running fleet. A new replica may take twice its usual cold start."""
    gateway = running.fleet["gateway"]
    return FleetSetup(
        admin_url=running.fleet["admin_url"],
        gateway_admin_url=gateway["admin_url"],
        eds_path=gateway["eds_path"],
        cluster=gateway["cluster"],
        pool=POOL,
        max_replicas=scenario.max_replicas,
        max_num_seqs=scenario.hardware.profile.max_num_seqs,
        price_usd_per_gpu_hour=scenario.hardware.price_usd_per_gpu_hour,
        client_timeout_s=scenario.clients.timeout_s,
        client_timeout_on="first_token" if scenario.clients.stream else "answer",
        client_retries=scenario.clients.retries,
        ready_within_s=2.0 * scenario.cold_start_s,
        port=port,
        levers=levers,
    )


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; on uvloop where it is installed: the same times, for less processor."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result
