"""One replica in virtual time: its place in life, its server, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

from fleetsim.dcgm import DeviceReading
from fleetsim.replica import ALLOCATED, ReplicaState
from fleetsim.timing import HEALTHY, Degradation, Profile
from fleetsim.virtual.engine import SkippingEngine
from fleetsim.virtual.exporters import ReadableMetrics
from fleetsim.virtual.server import Role, Server

PORT = 8000
PER_OCTET = 250
FIRST_PREFILL = 9000  # prefill engines are numbered from here, so that addresses and devices differ


def address_of(index: int) -> str:
    return f"10.0.{index // PER_OCTET}.{index % PER_OCTET + 1}:{PORT}"


class Replica:
    """State of one replica; the pool moves it. Times are virtual seconds.

    `degradation` is what befell this replica; its node's and the whole model's come on top. `plan` is what it
    is to do next: calls that were made for an earlier plan are void.
    """

    __slots__ = (
        "_measured", "address", "allocated_at", "build", "degradation", "device", "ended_at", "index", "leaving",
        "member", "name", "node", "plan", "role", "server", "since", "state", "then", "xid",
    )  # fmt: skip

    def __init__(self, name: str, index: int, server: Server, *, build: str, now: float) -> None:
        self.name = name
        self.index = index
        self.server = server
        self.role: Role = server.role
        self.address = address_of(index)
        self.device = f"GPU-{index:04d}"
        self.build = build
        self.state = ReplicaState.PENDING
        self.since = now
        self.node: int | None = None
        self.degradation: Degradation = HEALTHY
        self.xid = 0
        self.leaving = False
        self.member = False  # of the gateway's endpoints
        self.plan = 0
        self.then: Callable[[Replica], None] | None = None  # what its drain is for
        self.allocated_at: float | None = None
        self.ended_at: float | None = None
        self._measured = (0.0, 0.0, 0.0)

    @property
    def allocated(self) -> bool:
        return self.state in ALLOCATED

    def move(self, state: ReplicaState, now: float) -> None:
        if state is not self.state:
            self.state, self.since = state, now

    def boot(self, engine: SkippingEngine, metrics: ReadableMetrics) -> None:
        """Begin to serve with a new process, whose totals begin at nothing."""
        self._measured = (0.0, 0.0, 0.0)
        self.server.boot(engine, metrics)

    def reading(self, profile: Profile, period_s: float, slowdown: float) -> DeviceReading:
        """What the device did since the last call. A hung engine holds a kernel that computes nothing."""
        server = self.server
        busy = tensor = dram = 0.0
        if server.listening:
            activity = server.advance().activity
            now = (activity.busy_s, activity.tensor_s, activity.dram_s)
            busy, tensor, dram = (min(1.0, (b - a) / period_s) for a, b in zip(self._measured, now, strict=True))
            self._measured = now
        return DeviceReading(
            uuid=self.device,
            index=self.index,
            hostname=self.name,
            gpu=profile.gpu,
            busy=1.0 if server.hung else busy,
            tensor=tensor,
            dram=dram,
            loaded=server.listening,
            slowdown=max(1.0, self.degradation.g * slowdown),
            xid=self.xid,
        )
