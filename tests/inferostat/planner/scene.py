"""A pool as the planner sees it, built by hand: findings, measures, lever readings. Missing means unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from actuators.model import Action, Lever, LeverKey, LeverReading, LeverValue, Outcome, Status
from analyzers.codes import CODES
from analyzers.model import (
    Analysis,
    ClientBehaviour,
    Evidence,
    Finding,
    Layer,
    Measure,
    PoolSettings,
    Scope,
    ScopeKind,
    Severity,
)
from collector.model import Endpoint, Frame, Pool, SignalState, Table, Topology
from inferostat.planner import Decision, LeverPolicy, Mode, PlannerState, Policy, PoolPolicy, decide
from inferostat.planner.policy import DEFAULT_LEVERS

POOL = "default"
POOL_SCOPE = Scope(ScopeKind.POOL, POOL)


def address(index: int) -> str:
    return f"127.0.0.1:{9000 + index}"


def endpoint_scope(index: int) -> Scope:
    return Scope(ScopeKind.ENDPOINT, f"engine-{index}")


def finding(
    slug: str, scope: Scope = POOL_SCOPE, confidence: float = 0.9, signal: str = "itl", since: float = 0.0
) -> Finding:
    return Finding(
        slug,
        CODES[slug],
        Severity.CRITICAL,
        scope,
        since,
        confidence,
        f"{slug} as told by the test",
        Layer.QUEUE,
        (Evidence(signal, 1.0, 0.5, "the test says so"),),
        pool=POOL,
    )


@dataclass
class Scene:
    """Advance with `decide`, which plays the system: every action that may act is applied and read back."""

    endpoints: int = 4
    policy: PoolPolicy = field(
        default_factory=lambda: PoolPolicy(
            mode=Mode.ACT,
            settings=PoolSettings(client=ClientBehaviour(10.0, "answer", 2)),
        )
    )
    measures: dict[tuple[str, Scope], float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    values: dict[LeverKey, LeverValue] = field(default_factory=dict)
    unknown: set[LeverKey] = field(default_factory=set)
    ready: int | None = 4
    stale: set[int] = field(default_factory=set)
    paused: bool = False
    state: PlannerState = field(default_factory=PlannerState)
    deaf: bool = False  # writes are accepted and ignored
    history: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        for lever in (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET):
            self.values.setdefault(LeverKey(lever, POOL, POOL), None)
        self.values.setdefault(LeverKey(Lever.SCALE, POOL, POOL), 4.0)
        for index in range(self.endpoints):
            self.values.setdefault(LeverKey(Lever.WEIGHT, POOL, address(index)), 100.0)

    def measure(self, name: str, value: float | None, index: int | None = None) -> None:
        scope = POOL_SCOPE if index is None else endpoint_scope(index)
        if value is None:
            self.measures.pop((name, scope), None)
        else:
            self.measures[(name, scope)] = value

    def lever(self, lever: Lever, target: str = POOL) -> LeverValue:
        return self.values[LeverKey(lever, POOL, target)]

    def bound(self, lever: Lever, **changes: float | Mode) -> None:
        changed: LeverPolicy = replace(self.policy.lever(lever), **changes)  # type: ignore[arg-type]
        self.policy = replace(self.policy, levers={**DEFAULT_LEVERS, **self.policy.levers, lever: changed})

    def readings(self) -> list[LeverReading]:
        return [
            LeverReading(key, known=False, reason="the test hides it")
            if key in self.unknown
            else LeverReading(key, known=True, value=value, ready=self.ready if key.lever is Lever.SCALE else None)
            for key, value in self.values.items()
        ]

    def frame(self, now: float) -> Frame:
        names = tuple(f"engine-{index}" for index in range(self.endpoints))
        table = Table.empty(names, ("requests_running",))
        for index in range(self.endpoints):
            if index not in self.stale:
                table.value[index, 0] = 1.0
                table.state[index, 0] = SignalState.KNOWN
            else:
                table.state[index, 0] = SignalState.STALE
        nodes = {name: Endpoint(name, POOL, f"http://{address(i)}", address(i)) for i, name in enumerate(names)}
        topology = Topology({POOL: Pool(POOL, names)}, nodes)
        return Frame(now, table, Table.empty((), ()), Table.empty((), ()), topology)

    def decide(self, now: float) -> Decision:
        analysis = Analysis(
            now,
            tuple(self.findings),
            tuple(Measure(name, scope, value) for (name, scope), value in self.measures.items()),
        )
        policy = Policy({POOL: self.policy}, self.paused)
        decision = decide(analysis, self.frame(now), self.readings(), policy, self.state, now)
        self.state = decision.state
        for action in decision.actions:
            self.history.append(action)
            self.state = self.state.after(action, self._send(action, decision.modes, now))
        return decision

    def _send(self, action: Action, modes: Mapping[str, Mode], now: float) -> Outcome:
        if modes[action.id] is not Mode.ACT:
            return Outcome(action.id, now, Status.ADVISED, action.before)
        if self.deaf:
            return Outcome(action.id, now, Status.IGNORED, action.before)
        self.values[action.key] = action.after
        return Outcome(action.id, now, Status.APPLIED, action.after)


def moves(actions: Sequence[Action], lever: Lever) -> list[LeverValue]:
    return [action.after for action in actions if action.key.lever is lever]


def storm(scene: Scene, wait_s: float = 4.0, backlog: float = 200.0, active: float = 200.0) -> None:
    """A storm at its begin: batches of 32, 4 requests/s an engine, everyone still waiting for an answer."""
    scene.findings = [finding("retry-storm-incipient")]
    for index in range(scene.endpoints):
        scene.measure("batch_limit", 32.0, index)
        scene.measure("capacity_mu", 4.0, index)
    scene.measure("capacity_mu", 16.0)
    scene.measure("queue_wait_s", wait_s)
    scene.measure("engine_backlog", backlog)
    scene.measure("abandoned_work", max(0.0, backlog - active))
    scene.measure("amplification", 1.1)
    scene.measure("attempts_rate", 60.0)


__all__ = ["POOL", "POOL_SCOPE", "Scene", "address", "endpoint_scope", "finding", "moves", "storm"]
