"""One replica of the simulated fleet: its place in life, its engine process, its faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from fleetsim.dcgm import DeviceReading
from fleetsim.driver import Activity
from fleetsim.server import EngineServer, ServingOptions, bind_loopback
from fleetsim.timing import HEALTHY, Degradation, Profile

DRAIN_POLL_S = 0.1


class ReplicaState(StrEnum):
    PENDING = "pending"  # asked for, no GPUs yet
    WARMING = "warming"  # has GPUs, loads weights; the port is closed
    READY = "ready"
    DRAINING = "draining"  # finishes what it has, gets nothing new
    STOPPED = "stopped"
    CRASHED = "crashed"  # keeps its GPUs, the port is closed


ALLOCATED = frozenset({ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.CRASHED})


class Replica:
    """State and engine of one replica. Calls `on_change` after every change of state."""

    def __init__(
        self,
        index: int,
        *,
        profile: Profile,
        options: ServingOptions,
        build: str,
        on_change: Callable[[Replica, ReplicaState | None], None],
        clock: Callable[[], float],
    ) -> None:
        self.index = index
        self.id = f"r{index}"
        self.name = f"engine-{index}"
        self.device = f"GPU-{index:04d}"
        self.build = build
        self.degradation: Degradation = HEALTHY
        self.xid = 0
        self.state = ReplicaState.PENDING
        self.since = clock()
        self.server: EngineServer | None = None
        self.port = 0
        self._bound: socket.socket | None = None  # holds the port while nobody listens
        self._profile = profile
        self._options = options
        self._on_change = on_change
        self._clock = clock
        self._seen = (0.0, 0.0, 0.0)
        on_change(self, None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def hung(self) -> bool:
        return self.server is not None and self.server.driver.hung

    def describe(self, price_usd_per_gpu_hour: float) -> dict[str, Any]:
        """The replica as GET /admin/fleet shows it; `url` and `address` are null before its first start."""
        return {
            "id": self.id,
            "name": self.name,
            "url": f"http://{self.address}" if self.port else None,
            "address": self.address if self.port else None,
            "state": self.state.value,
            "since": self.since,
            "g": self.degradation.g,
            "build": self.build,
            "gpus": self._profile.gpus_per_replica,
            "price_usd_per_gpu_hour": price_usd_per_gpu_hour,
            "device": self.device,
        }

    def move(self, state: ReplicaState) -> None:
        if state is self.state:
            return
        before, self.state, self.since = self.state, state, self._clock()
        self._on_change(self, before)

    async def warm(self, cold_start_s: float) -> None:
        """Load for `cold_start_s`, then serve as a new process on the replica's port."""
        if self._bound is None:
            self._bound = bind_loopback(self.port)
            self.port = self._bound.getsockname()[1]
        self.move(ReplicaState.WARMING)
        # The process starts now and serves once it is warm.
        server = EngineServer(self._profile, self._options)
        await asyncio.sleep(cold_start_s)
        bound, self._bound = self._bound, None
        await server.start(bound)
        server.degrade(self.degradation)
        self.server = server
        self._seen = (0.0, 0.0, 0.0)
        self.move(ReplicaState.READY)

    async def drained(self, deadline_s: float) -> bool:
        """Wait until the engine holds nothing; False when it still does after `deadline_s`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        while self.server is not None and self.server.in_flight:
            if loop.time() > until:
                return False
            await asyncio.sleep(DRAIN_POLL_S)
        return True

    async def end(self, state: ReplicaState) -> None:
        """End the engine process and move to `state`; the port stays held unless that is STOPPED."""
        server, self.server = self.server, None
        self.move(state)
        if server is not None:
            await server.stop()
            self._bound = bind_loopback(self.port)
        if state is ReplicaState.STOPPED:
            self.release()

    def release(self) -> None:
        """Give up a port that is held but not served."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def degrade(self, degradation: Degradation) -> None:
        self.degradation = degradation
        if self.server is not None:
            self.server.degrade(degradation)

    def hang(self, hung: bool) -> None:
        if self.server is not None:
            self.server.driver.set_hung(hung)

    def reading(self, period_s: float) -> DeviceReading:
        """What the device did since the last call. A hung engine holds a kernel that computes nothing."""
        activity = self.server.driver.activity if self.server is not None else Activity()
        now = (activity.busy_s, activity.tensor_s, activity.dram_s)
        busy, tensor, dram = (min(1.0, (b - a) / period_s) for a, b in zip(self._seen, now, strict=True))
        self._seen = now
        return DeviceReading(
            uuid=self.device,
            index=self.index,
            hostname=self.name,
            gpu=self._profile.gpu,
            busy=1.0 if self.hung else busy,
            tensor=tensor,
            dram=dram,
            loaded=self.server is not None,
            slowdown=max(1.0, self.degradation.g),
            xid=self.xid,
        )
