"""The pool of replicas: scaling, draining, faults, membership at the gateway, the log of it all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fleetsim.eds import EndpointFile
from fleetsim.events import Fault
from fleetsim.file_sd import engine_target
from fleetsim.files import replace_json
from fleetsim.replica import ALLOCATED, Replica, ReplicaState
from fleetsim.scenario import Scenario
from fleetsim.server import ServingOptions
from fleetsim.timing import HEALTHY

DRAIN_DEADLINE_S = 120.0


class UnknownReplica(LookupError):
    """No live replica of that id or name."""


class Pool:
    """All replicas of the fleet. Methods return at once; warming, draining and restarts go on behind them."""

    def __init__(self, scenario: Scenario, endpoints: EndpointFile, targets_path: Path) -> None:
        self.scenario = scenario
        self.target = 0
        self.replicas: list[Replica] = []
        self.transitions: list[dict[str, Any]] = []
        self.other_targets: list[dict[str, Any]] = []
        self._profile = scenario.hardware.profile
        self._options = ServingOptions(
            abort_on_disconnect=scenario.serving.abort_on_disconnect,
            headers_at_first_token=scenario.serving.headers_at_first_token,
            stream_interval=scenario.serving.stream_interval,
        )
        self._endpoints = endpoints
        self._targets_path = targets_path
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[str] = set()

    @property
    def ready(self) -> int:
        return sum(r.state is ReplicaState.READY for r in self.replicas)

    @property
    def allocated(self) -> list[Replica]:
        return [r for r in self.replicas if r.state in ALLOCATED]

    async def start(self) -> None:
        """Bring up the scenario's engines at once: they were warm before the story begins."""
        self.target = self.scenario.engines
        started = [self._create() for _ in range(self.target)]
        await asyncio.gather(*(replica.warm(0.0) for replica in started))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(r.end(ReplicaState.STOPPED) for r in self.replicas))

    def scale(self, replicas: int) -> None:
        """Set the wanted number; new ones start cold, the newest go first, after finishing their work."""
        self.target = replicas
        # A scale-down in progress is not undone: its replicas are leaving, and new ones come for them.
        staying = [r for r in self.replicas if not self._is_leaving(r)]
        for _ in range(replicas - len(staying)):
            replica = self._create()
            if not self.scenario.unschedulable:
                self._begin(replica, replica.warm(self.scenario.cold_start_s))
        surplus = len(staying) - replicas
        if surplus > 0:
            newest_first = sorted(staying, key=lambda r: (r.state is ReplicaState.PENDING, r.index), reverse=True)
            for replica in newest_first[:surplus]:
                self._leaving.add(replica.id)
                self._begin(replica, self._retire(replica))

    def drain(self, key: str, draining: bool) -> None:
        """Stop or resume sending new requests to a replica; it keeps running either way."""
        replica = self.find(key)
        if draining and replica.state is ReplicaState.READY:
            self._endpoints.set_draining(replica.port, True)
            replica.move(ReplicaState.DRAINING)
        elif not draining and replica.state is ReplicaState.DRAINING and not self._is_leaving(replica):
            self._endpoints.set_draining(replica.port, False)
            replica.move(ReplicaState.READY)

    def find(self, key: str) -> Replica:
        """A live replica by id or name; UnknownReplica otherwise."""
        for replica in self.replicas:
            if key in (replica.id, replica.name) and replica.state is not ReplicaState.STOPPED:
                return replica
        live = ", ".join(r.name for r in self.replicas if r.state is not ReplicaState.STOPPED)
        raise UnknownReplica(f"expected a live replica, found {key!r}: use one of {live}")

    async def inflict(self, fault: Fault) -> list[str]:
        """Apply a fault to its targets; the names of those it hit."""
        if fault.targets == "all":
            hit = [r for r in self.replicas if r.state is not ReplicaState.STOPPED]
        else:
            hit = [self.find(key) for key in fault.targets]
        for replica in hit:
            await self._inflict(replica, fault)
        return [r.name for r in hit]

    def faults(self) -> list[dict[str, Any]]:
        """What is wrong with the fleet now, for people who look at it."""
        found: list[dict[str, Any]] = []
        for replica in self.replicas:
            if replica.state is ReplicaState.CRASHED:
                found.append({"kind": "crash", "target": replica.name, "xid": replica.xid})
            if replica.hung:
                found.append({"kind": "hang", "target": replica.name})
            d = replica.degradation
            if d != HEALTHY and replica.state is not ReplicaState.STOPPED:
                found.append(
                    {
                        "kind": "slow",
                        "target": replica.name,
                        "g": d.g,
                        "g_decode": d.g_decode,
                        "g_prefill": d.g_prefill,
                    }
                )
        return found

    def write_targets(self) -> None:
        """Publish who can be scraped, in Prometheus' file_sd format."""
        engines = [
            engine_target(
                address=r.address,
                name=r.name,
                state=r.state.value,
                gpus=self._profile.gpus_per_replica,
                build=r.build,
                device=r.device,
            )
            for r in self.replicas
            if r.state in ALLOCATED
        ]
        replace_json(self._targets_path, engines + self.other_targets)

    def _is_leaving(self, replica: Replica) -> bool:
        return replica.state is ReplicaState.STOPPED or replica.id in self._leaving

    def _create(self) -> Replica:
        index = len(self.replicas)
        build = self.scenario.builds.get(f"engine-{index}", "b1")
        replica = Replica(
            index,
            profile=self._profile,
            options=self._options,
            build=build,
            on_change=self._changed,
            clock=time.time,
        )
        self.replicas.append(replica)
        return replica

    def _begin(self, replica: Replica, work: Coroutine[Any, Any, None]) -> None:
        """Give a replica something to do in its own time, in place of what it was doing."""
        before = self._tasks.pop(replica.id, None)
        if before is not None:
            before.cancel()
        self._tasks[replica.id] = asyncio.get_running_loop().create_task(work)

    async def _retire(self, replica: Replica) -> None:
        if replica.state is ReplicaState.READY:
            self._endpoints.set_draining(replica.port, True)
            replica.move(ReplicaState.DRAINING)
        if replica.state is ReplicaState.DRAINING:
            await replica.drained(DRAIN_DEADLINE_S)
        await replica.end(ReplicaState.STOPPED)

    async def _deploy(self, replica: Replica, fault: Fault) -> None:
        if replica.state is ReplicaState.READY:
            self._endpoints.set_draining(replica.port, True)
            replica.move(ReplicaState.DRAINING)
            await replica.drained(DRAIN_DEADLINE_S)
        await replica.end(ReplicaState.WARMING)
        replica.build = fault.build or replica.build
        replica.degrade(fault.degradation)
        await replica.warm(self.scenario.cold_start_s)

    async def _inflict(self, replica: Replica, fault: Fault) -> None:
        match fault.kind:
            case "slow":
                replica.degrade(fault.degradation)
            case "hang":
                replica.hang(True)
            case "crash":
                replica.xid = fault.xid or replica.xid
                if replica.server is not None:
                    await replica.end(ReplicaState.CRASHED)
            case "deploy":
                self._begin(replica, self._deploy(replica, fault))
            case "recover":
                replica.degrade(HEALTHY)
                replica.hang(False)
                if replica.state is ReplicaState.CRASHED:
                    replica.xid = 0
                    self._begin(replica, replica.warm(self.scenario.cold_start_s))

    def _changed(self, replica: Replica, before: ReplicaState | None) -> None:
        self.transitions.append(
            {
                "at": replica.since,
                "replica": replica.name,
                "from": before.value if before is not None else None,
                "to": replica.state.value,
                "gpus": self._profile.gpus_per_replica,
                "price_usd_per_gpu_hour": self.scenario.hardware.price_usd_per_gpu_hour,
            }
        )
        if replica.state is ReplicaState.READY:
            self._endpoints.add(replica.port)
            self._endpoints.set_draining(replica.port, False)
        elif replica.state is ReplicaState.STOPPED and replica.port:
            self._endpoints.remove(replica.port)
        self.write_targets()
