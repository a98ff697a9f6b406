"""The pool of replicas in virtual time: scaling, draining, restarts, GPUs, membership at the gateway, the bill.

What happens to it from outside (crashes, nodes, reclaims, deploys) is in fleetsim.virtual.incidents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fleetsim.events import CacheEvent, CapacityEvent, EngineEvent, NodeEvent, ReclaimEvent
from fleetsim.jitter import Jitter
from fleetsim.replica import ReplicaState
from fleetsim.scenario import Scenario
from fleetsim.timing import Degradation
from fleetsim.virtual import incidents
from fleetsim.virtual.attempt import Port, Upstream
from fleetsim.virtual.cold_start import ColdStarts
from fleetsim.virtual.engine import SkippingEngine
from fleetsim.virtual.exporters import ReadableMetrics
from fleetsim.virtual.placement import Placement
from fleetsim.virtual.replica import FIRST_PREFILL, Replica
from fleetsim.virtual.result import Allocation
from fleetsim.virtual.server import Role, Server
from fleetsim.virtual.simulation import Simulation

MODEL_NAME = "llama-3.1-70b"  # as the embedded fleet's servers call it, whatever the hardware
FIRST_BUILD = "b1"
DRAIN_POLL_S = 0.1


class Membership(Upstream, Protocol):
    """The gateway as the pool knows it: it takes servers' answers and learns which servers there are."""

    def add(self, name: str, address: str, port: Port, role: Role = "serve") -> None: ...

    def remove(self, name: str) -> None: ...

    def set_draining(self, name: str, draining: bool) -> None: ...


class Pool:
    """All replicas there have been. `wanted` and `ready` count the scalable ones: prefill engines stay as they are.

    `g` multiplies the step times of all: an error of the model. `origin` is the unix time of second 0.
    A replica holds GPUs from the moment it begins to load until it is stopped, crashed or not.
    """

    def __init__(
        self,
        simulation: Simulation,
        scenario: Scenario,
        gateway: Membership,
        *,
        seed: int,
        g: float = 1.0,
        origin: float = 0.0,
    ) -> None:
        cluster = scenario.cluster
        self.scenario = scenario
        self.profile = scenario.hardware.profile
        self.simulation = simulation
        self.wanted = scenario.engines
        self.replicas: list[Replica] = []
        self.placement = Placement(
            scenario.max_replicas if cluster.schedulable_replicas is None else cluster.schedulable_replicas,
            cluster.replicas_per_node,
        )
        self._gateway = gateway
        self._seed = seed
        self._g = g
        self._origin = origin
        self._cold_starts = ColdStarts(scenario.cold_start_s, cluster.cold_start_sigma, seed)
        self._scalable_role: Role = "decode" if scenario.prefill_engines else "serve"
        self._created = 0
        self._generated = 0.0  # tokens of processes that are gone

    def start(self) -> None:
        """Bring up the scenario's engines at once, as far as there are GPUs: they were warm before the story begins."""
        for k in range(self.scenario.prefill_engines):
            replica = self._create(f"prefill-{k}", FIRST_PREFILL + k, "prefill")
            replica.allocated_at = self.simulation.now
            self._serve(replica, replica.plan)
        for replica in [self._create_scalable() for _ in range(self.wanted)]:
            if self._place(replica):
                self._serve(replica, replica.plan)

    @property
    def scalable(self) -> list[Replica]:
        """Replicas that `wanted` is about, those on their way out included."""
        return [r for r in self.replicas if r.role != "prefill" and r.state is not ReplicaState.STOPPED]

    @property
    def live(self) -> list[Replica]:
        return [r for r in self.replicas if r.state is not ReplicaState.STOPPED]

    @property
    def ready(self) -> int:
        return sum(r.state is ReplicaState.READY for r in self.scalable)

    @property
    def allocated(self) -> list[Replica]:
        return [r for r in self.replicas if r.allocated]

    @property
    def generated_tokens(self) -> int:
        """Tokens that all engines have made up to now, wanted or not."""
        running = 0.0
        for replica in self.live:
            metrics = self._metrics_of(replica)
            if metrics is not None:
                running += metrics.generated_tokens
        return round(self._generated + running)

    def find(self, name: str) -> Replica | None:
        """The live replica of that name."""
        for replica in self.replicas:
            if replica.name == name and replica.state is not ReplicaState.STOPPED:
                return replica
        return None

    def scale(self, replicas: int) -> None:
        """Set the wanted number; new ones start cold, the newest go first, after finishing their work."""
        self.wanted = replicas
        self.reconcile()

    def retire(self, name: str) -> None:
        """Drain one replica and give its GPUs back; the wanted number falls by one."""
        replica = self.find(name)
        if replica is None or replica.leaving or replica.role == "prefill":
            raise ValueError(f"expected a replica that is to stay, found {name!r}: it is gone or leaving already")
        self.wanted -= 1
        self.send_away(replica, self.scenario.cluster.drain_deadline_s)

    def inflict(self, event: EngineEvent | NodeEvent | ReclaimEvent | CapacityEvent | CacheEvent) -> list[str]:
        """Let an event happen now; the names of the replicas it hit."""
        return incidents.inflict(self, event)

    def allocations(self, end: float) -> tuple[Allocation, ...]:
        """GPUs held up to `end`, a replica each; pending ones have held none."""
        hardware = self.scenario.hardware
        return tuple(
            Allocation(
                r.name,
                hardware.gpus_per_replica,
                hardware.price_usd_per_gpu_hour,
                r.allocated_at,
                end if r.ended_at is None else r.ended_at,
            )
            for r in self.replicas
            if r.allocated_at is not None
        )

    # What incidents use, besides the above.

    def reconcile(self) -> None:
        """Create what is missing and send away what is too much. Who leaves already is neither."""
        # A scale-down in progress is not undone: its replicas are leaving, and new ones come for them.
        staying = [r for r in self.scalable if not r.leaving]
        for _ in range(self.wanted - len(staying)):
            replica = self._create_scalable()
            if not self.scenario.unschedulable and self._place(replica):
                self.warm(replica)
        surplus = len(staying) - self.wanted
        if surplus > 0:
            staying.sort(key=lambda r: (r.state is ReplicaState.PENDING, r.index), reverse=True)
            for replica in staying[:surplus]:
                self.send_away(replica, self.scenario.cluster.drain_deadline_s)

    def place_pending(self) -> None:
        """Start replicas that wait for GPUs, the oldest first, as far as there are GPUs now."""
        if self.scenario.unschedulable:
            return
        for replica in self.scalable:
            if replica.state is ReplicaState.PENDING and self._place(replica):
                self.warm(replica)

    def send_away(self, replica: Replica, deadline_s: float) -> None:
        """Drain a replica if it serves, then stop it; one that does not serve stops at once."""
        replica.leaving = True
        if replica.state in (ReplicaState.READY, ReplicaState.DRAINING):
            self.drain(replica, deadline_s, self.stop)
        else:
            self.stop(replica)

    def drain(self, replica: Replica, deadline_s: float, then: Callable[[Replica], None]) -> None:
        """Send nothing new, wait until its work is done or `deadline_s` is over, and go on with `then`."""
        now = self.simulation.now
        self._gateway.set_draining(replica.name, True)
        replica.move(ReplicaState.DRAINING, now)
        replica.plan += 1
        replica.then = then
        self.simulation.after(min(DRAIN_POLL_S, deadline_s), self._poll, replica, replica.plan, now + deadline_s)

    def warm(self, replica: Replica) -> None:
        """Load the weights as a new process, then serve."""
        replica.plan += 1
        replica.then = None
        replica.move(ReplicaState.WARMING, self.simulation.now)
        self.simulation.after(self._cold_starts.draw(replica.name), self._serve, replica, replica.plan)

    def stop(self, replica: Replica) -> None:
        """End a replica for good and give its GPUs to whoever waits for some."""
        now = self.simulation.now
        replica.plan += 1
        replica.leaving = True
        self.end_process(replica)
        replica.move(ReplicaState.STOPPED, now)
        if replica.member:
            self._gateway.remove(replica.name)
        if replica.allocated_at is not None:
            replica.ended_at = now
        if replica.node is not None:
            self.placement.give_back(replica.node)
            self.place_pending()

    def end_process(self, replica: Replica) -> None:
        """What the engine was doing is lost; its GPUs are kept."""
        metrics = self._metrics_of(replica)
        if metrics is not None:
            self._generated += metrics.generated_tokens
        replica.server.end()

    def degrade(self, replica: Replica) -> None:
        """Let the engine run as fast as its faults, its node and the model's error allow."""
        if replica.server.listening:
            replica.server.degrade(self._degradation(replica))

    def _metrics_of(self, replica: Replica) -> ReadableMetrics | None:
        """The metrics of a replica's process, up to date; None when there is no process."""
        if not replica.server.listening:
            return None
        replica.server.advance()
        return replica.server.metrics

    def _create(self, name: str, index: int, role: Role) -> Replica:
        server = Server(self.simulation, self._gateway, self.scenario.serving, self.profile, role)
        build = self.scenario.builds.get(name, FIRST_BUILD)
        replica = Replica(name, index, server, build=build, now=self.simulation.now)
        self.replicas.append(replica)
        return replica

    def _create_scalable(self) -> Replica:
        index, self._created = self._created, self._created + 1
        return self._create(f"engine-{index}", index, self._scalable_role)

    def _place(self, replica: Replica) -> bool:
        replica.node = self.placement.take()
        if replica.node is None:
            return False
        replica.allocated_at = self.simulation.now
        return True

    def _serve(self, replica: Replica, plan: int) -> None:
        """A process that has loaded begins to listen."""
        if replica.plan != plan:
            return
        now = self.simulation.now
        metrics = ReadableMetrics(self.profile, MODEL_NAME, self._origin + replica.since)
        jitter = self.scenario.hardware.jitter
        engine = SkippingEngine(
            self.profile,
            self._degradation(replica),
            metrics=metrics,
            jitter=Jitter(jitter, seed=self._seed, name=replica.name) if jitter else None,
        )
        replica.boot(engine, metrics)
        replica.move(ReplicaState.READY, now)
        if not replica.member:
            self._gateway.add(replica.name, replica.address, replica.server, replica.role)
            replica.member = True
        self._gateway.set_draining(replica.name, False)

    def _poll(self, replica: Replica, plan: int, until: float) -> None:
        if replica.plan != plan:
            return
        left = until - self.simulation.now
        if left <= 0 or not replica.server.in_flight:
            assert replica.then is not None
            replica.then(replica)
        else:
            self.simulation.after(min(DRAIN_POLL_S, left), self._poll, replica, plan, until)

    def _degradation(self, replica: Replica) -> Degradation:
        own = replica.degradation
        g = own.g * self.placement.slowdown(replica.node) * self._g
        return Degradation(g, own.g_decode, own.g_prefill)
