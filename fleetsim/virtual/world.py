"""The whole fleet in virtual time, put together from a scenario: clients, gateway, replicas, exporters, and its faults.

Who plays against it sees `observe` or `telemetry` and moves `controls`; the rest is the simulator's truth.
"""

from __future__ import annotations

from fleetsim.events import Event, GatewayEvent, LoadEvent, TelemetryEvent
from fleetsim.policies.policy import Policy
from fleetsim.policies.registry import build
from fleetsim.scenario import Scenario
from fleetsim.virtual import envoy_stats
from fleetsim.virtual.clients import Clients, feed
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.exporters import DeviceExporter
from fleetsim.virtual.gateway import Gateway
from fleetsim.virtual.headers import Headers
from fleetsim.virtual.moves import MoveLog
from fleetsim.virtual.observation import Observation
from fleetsim.virtual.offered import Offered
from fleetsim.virtual.pool import Pool
from fleetsim.virtual.result import Run, Told
from fleetsim.virtual.scrape import Observer
from fleetsim.virtual.simulation import Simulation
from fleetsim.virtual.sizing import fleet_capacity_rps
from fleetsim.virtual.telemetry import Telemetry
from fleetsim.virtual.workflows import Workflows

OPERATOR = "operator"  # who makes the timeline's own moves
ORIGIN = 1_750_000_000.0  # unix time of second 0, as exporters and agents have it


class World:
    """One run of a scenario; what is None is the scenario's own.

    `load` is a share of the capacity that is measured first. `g` multiplies all step times, and with them that
    capacity: what a model that errs by so much would say of the same relative load.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int | None = None,
        load: float | None = None,
        duration_s: float | None = None,
        g: float = 1.0,
    ) -> None:
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self.load = scenario.load if load is None else load
        self.duration_s = scenario.duration_s if duration_s is None else duration_s
        self.capacity_rps = fleet_capacity_rps(scenario, g)
        self.simulation = simulation = Simulation()
        self.log = MoveLog()
        self.gateway = Gateway(
            simulation, scenario.gateway, self.seed, self.log, Headers.of(scenario.clients, scenario.serving)
        )
        self.pool = Pool(simulation, scenario, self.gateway, seed=self.seed, g=g, origin=ORIGIN)
        bounds = (scenario.min_replicas, scenario.max_replicas)
        self.controls = Controls(simulation, self.pool, self.gateway, bounds, self.log)
        priorities = {tenant.name: tenant.priority for tenant in scenario.tenants}
        self.clients = Clients(simulation, self.gateway, scenario.clients, self.seed, priorities)
        self._offered = Offered(scenario, self.load * self.capacity_rps, self.duration_s, self.seed)
        self._workflows = (
            Workflows(simulation, self.clients, scenario.workflow, self._offered.fanout) if scenario.workflow else None
        )
        self._devices = DeviceExporter(simulation, self.pool)
        telemetry_events = [e for e in scenario.timeline if isinstance(e, TelemetryEvent)]
        self._telemetry = Telemetry(
            self.pool, self._devices, lambda now: envoy_stats.render(self.gateway), telemetry_events
        )
        self._observer = Observer(self.pool, self._telemetry, lambda now: envoy_stats.seen(self.gateway), bounds)
        self._told: list[Told] = []
        self._start()

    @property
    def telemetry(self) -> Telemetry:
        """What can be scraped. The devices' exporter runs from the first time that somebody asks."""
        self._devices.start()
        return self._telemetry

    def run_until(self, t: float) -> None:
        """Let the world go on to `t` seconds; never beyond its end."""
        self.simulation.run_until(min(t, self.duration_s))

    def observe(self) -> Observation:
        """One look from outside, now."""
        return self._observer.observe(self.simulation.now)

    def finish(self, policy: str, timeline: tuple[Told, ...] = ()) -> Run:
        """The run, after its last second. `timeline`: what the policy tells of itself, its own actions included."""
        moved = [
            Told(m.t, "action", m.lever, m.target, _shown(m.after), f"{m.actor}: {m.reason}".rstrip(": "))
            for m in self.log.moves
            if not (timeline and m.actor == policy)
        ]
        return Run(
            scenario=self.scenario,
            policy=policy,
            seed=self.seed,
            load=self.load,
            duration_s=self.duration_s,
            capacity_rps=self.capacity_rps,
            offered_rps=self.load * self.capacity_rps,
            calls=tuple(self.clients.records),
            tasks=tuple(self._workflows.records) if self._workflows is not None else (),
            allocations=self.pool.allocations(self.simulation.now),
            moves=tuple(self.log.moves),
            timeline=tuple(sorted([*self._told, *timeline, *moved], key=lambda told: told.t)),
            generated_tokens=self.pool.generated_tokens,
        )

    def _start(self) -> None:
        self.pool.start()
        arrive = self.clients.call if self._workflows is None else self._workflows.arrive
        feed(self.simulation, iter(self._offered), arrive)
        for event in self.scenario.timeline:
            self.simulation.at(event.at_s, self._happen, event)
        writer = self.scenario.other_writer
        if writer is not None:
            other = build(writer.policy, self.scenario)
            other.name = f"other {other.name}"  # the tested policy may be of the same kind
            self.simulation.at(writer.from_s, self._write, other)

    def _happen(self, event: Event) -> None:
        """An entry of the timeline is due. Traffic and telemetry have known theirs from the start."""
        hit: list[str] = []
        if isinstance(event, GatewayEvent):
            for lever in ("admission", "breaker"):
                self.controls.set_limit(OPERATOR, lever, getattr(event, lever), "timeline")
        elif not isinstance(event, LoadEvent | TelemetryEvent):
            hit = self.pool.inflict(event)
        said = event.model_dump(mode="json", exclude={"at_s", "kind", "targets"}, exclude_defaults=True)
        named = getattr(event, "targets", "")
        target = ",".join(hit) or (named if isinstance(named, str) else ",".join(named))
        reason = " ".join(f"{key}={value}" for key, value in said.items())
        self._told.append(Told(self.simulation.now, "fault", None, target, event.kind, reason))

    def _write(self, other: Policy) -> None:
        """Let the other writer look and act, as often as it does."""
        other.decide(self.observe(), self.controls)
        self.simulation.after(other.period_s, self._write, other)


def _shown(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"
