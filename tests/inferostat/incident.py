"""A made-up incident, cycle by cycle: engines slow down, a storm, limits taken and given back.

Plain values for the status board, telemetry and page; nothing is measured and nothing is real.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from actuators.model import Action, Direction, Expectation, Lever, LeverKey, LeverReading, Outcome, Status
from analyzers.model import (
    Advice,
    Analysis,
    Evidence,
    Finding,
    Layer,
    Measure,
    Optimisation,
    PoolSettings,
    Scope,
    ScopeKind,
    Severity,
)
from collector.history import History
from collector.model import (
    Device,
    Endpoint,
    Frame,
    Histogram,
    Pool,
    Route,
    SignalState,
    Table,
    TargetRole,
    TargetStatus,
    Topology,
)
from inferostat.api.fleet import FaultInfo, FleetInfo, ReplicaInfo
from inferostat.api.view import CycleView
from inferostat.planner.model import Consideration, Decision, Mode, Step, StepName, Verdict
from inferostat.planner.state import PlannerState

START = 1_790_000_000.0
POOL = "default"
POOL_SCOPE = Scope(ScopeKind.POOL, POOL)
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
BOUNDS = np.array([0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, np.inf])
ITL_BOUNDS = np.array([0.05, 0.1, np.inf])
COLUMNS = ("requests_running", "requests_waiting", "kv_cache_usage", "generation_tokens")
FAULT_FROM, FAULT_TO = 60, 105


class Incident:
    """`cycle(n)` values are a function of n alone; `history` grows as the cycles are taken in order."""

    def __init__(self, start: float = START, names: tuple[str, ...] = ("engine-0", "engine-1", "engine-2", "engine-3")):
        self.start = start
        self.names = names
        self.history = History()
        self._ttft = {name: np.zeros(BOUNDS.size) for name in names}
        self._tokens = 0.0

    def cycles(self, count: int) -> Iterator[CycleView]:
        for number in range(count):
            yield self.cycle(number)

    def cycle(self, n: int) -> CycleView:
        at = self.start + n
        frame = self._frame(n, at)
        self.history.append(frame)
        findings = self._findings(n, at)
        decision, outcomes = self._decision(n, at, findings)
        return CycleView(
            cycle=n,
            at=at,
            duration_s=0.043,
            interval_s=1.0,
            report=f"5 targets, {len(findings)} findings; {decision.sentence()}",
            frame=frame,
            history=self.history,
            analysis=Analysis(at, findings, self._measures(n)),
            decision=decision,
            outcomes=outcomes,
            readings=self._readings(n),
            settings={POOL: PoolSettings()},
            fleet=self._fleet(n, at),
        )

    def pressure(self, n: int) -> float:
        """0 calm .. 1 at the height of the storm."""
        if n < FAULT_FROM:
            return 0.0
        if n < FAULT_TO:
            return min(1.0, (n - FAULT_FROM) / 15)
        return max(0.0, 1.0 - (n - FAULT_TO) / 12)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{9000 + self.names.index(name)}"

    def limit(self, n: int) -> float | None:
        if not FAULT_FROM + 8 <= n < FAULT_TO + 25:
            return None
        return 64.0 if n < FAULT_FROM + 10 else 48.0 if n < FAULT_TO + 5 else 48.0 + 4 * (n - FAULT_TO - 5)

    def _frame(self, n: int, at: float) -> Frame:
        names, p = self.names, self.pressure(n)
        table = Table.empty(names, COLUMNS)
        self._tokens += 560.0 * (1 - 0.4 * p)
        rng = np.random.default_rng(n)
        hung = len(names) - 1
        for row, name in enumerate(names):
            values = (24 + 8 * p + rng.integers(-2, 3), round(38 * p), 0.44 + 0.5 * p, self._tokens + row)
            table.value[row], table.state[row], table.age_s[row] = values, SignalState.KNOWN, 0.1
            self._ttft[name] += self._observations(p, rng)
        if n >= FAULT_FROM + 20:  # the last engine answers no more
            table.value[hung], table.state[hung], table.age_s[hung] = (
                np.nan,
                SignalState.STALE,
                n - FAULT_FROM - 10.0,
            )
        known = np.where(table.state[:, 0] == SignalState.KNOWN, SignalState.KNOWN, SignalState.STALE).astype(np.uint8)
        tokens = 600.0 * (n + 1)
        itl = [Histogram(ITL_BOUNDS, np.full(ITL_BOUNDS.size, tokens), tokens * 0.024) for _ in names]
        histograms = [Histogram(BOUNDS, self._ttft[name].copy(), float(self._ttft[name][-1])) for name in names]
        endpoints = Table(
            table.rows,
            table.columns,
            table.value,
            table.state,
            table.age_s,
            {"ttft": histograms, "itl": itl},
            {"ttft": known, "itl": known},
        )
        devices = Table.empty([f"GPU-{i}" for i in range(len(names))], ("dram_active", "tensor_active"))
        routes = Table.empty(("llm",), ("active",))
        routes.value[0, 0], routes.state[0, 0], routes.age_s[0, 0] = 96 + 60 * p, SignalState.KNOWN, 0.1
        return Frame(at, endpoints, devices, routes, self._topology(), self._targets(n, at))

    def _observations(self, p: float, rng: np.random.Generator) -> np.ndarray:
        """Cumulative counts of six first tokens this second."""
        seconds = rng.exponential(0.2 + 3.0 * p, 6)
        return np.array([(seconds <= bound).sum() for bound in BOUNDS], dtype=np.float64)

    def _topology(self) -> Topology:
        endpoints = {
            name: Endpoint(
                name,
                POOL,
                f"http://{self.address(name)}",
                self.address(name),
                4,
                "vllm",
                "0.32",
                "llama-70b",
                "b1",
            )
            for name in self.names
        }
        devices = {f"GPU-{i}": Device(f"GPU-{i}", name, POOL) for i, name in enumerate(self.names)}
        return Topology({POOL: Pool(POOL, self.names)}, endpoints, devices, {"llm": Route("llm", "envoy", POOL)})

    def _targets(self, n: int, at: float) -> tuple[TargetStatus, ...]:
        lost = n >= FAULT_FROM + 20
        error = "expected metrics within 0.8 s, found no answer; look whether the engine hangs"
        engines = [
            TargetStatus(
                name,
                TargetRole.ENGINE,
                f"http://{self.address(name)}/metrics",
                up=not (lost and name == self.names[-1]),
                error=error if lost and name == self.names[-1] else None,
                scraped_at=self.start + FAULT_FROM + 10 if lost and name == self.names[-1] else at - 0.1,
                duration_s=0.004,
                product="vllm",
            )
            for name in self.names
        ]
        gateway = TargetStatus("envoy", TargetRole.GATEWAY, "http://127.0.0.1:9901/stats", True, scraped_at=at - 0.1)
        return (*engines, gateway)

    def _measures(self, n: int) -> tuple[Measure, ...]:
        p = self.pressure(n)
        noise = float(np.random.default_rng(n).normal(0, 0.4))
        held = 0.7 if self.limit(n) is not None else 1.0
        offered = 24.8 + noise
        nan = float("nan")
        pool = (
            Measure("offered_rate", POOL_SCOPE, offered, unit="1/s"),
            Measure("attempts_rate", POOL_SCOPE, offered * (1 + 1.1 * p * held), unit="1/s"),
            Measure("goodput_rate", POOL_SCOPE, offered * (1 - 0.45 * p), unit="1/s"),
            Measure("amplification", POOL_SCOPE, 1 + 1.1 * p * held, unit="ratio"),
            Measure("vulnerability", POOL_SCOPE, 2.4 + p, unit="ratio"),
            Measure(
                "capacity_mu",
                POOL_SCOPE,
                31.0 - 12 * p if n > 20 else nan,
                SignalState.KNOWN if n > 20 else SignalState.WARMING,
                "1/s",
            ),
            Measure("queue_wait_s", POOL_SCOPE, 0.2 + 6 * p * held, unit="s"),
            Measure("success_per_dollar", POOL_SCOPE, 1890 * (1 - 0.45 * p), unit="1/USD"),
            Measure("time_to_timeout_s", POOL_SCOPE, nan, SignalState.MISSING, "s"),
        )
        ratio = tuple(
            Measure("hbm_compute_ratio", Scope(ScopeKind.ENDPOINT, name), 3.1 - p, unit="ratio")
            for name in self.names[:-1]
        )
        return pool + ratio

    def _findings(self, n: int, at: float) -> tuple[Finding, ...]:
        found = [
            Finding(
                "vulnerable",
                "IS0201",
                Severity.INFO,
                POOL_SCOPE,
                self.start,
                0.9,
                "load with all retries is 2.4 times capacity",
                Layer.CLIENT,
                pool=POOL,
            ),
        ]
        if FAULT_FROM + 7 <= n < FAULT_TO + 6:
            slug, code, severity = ("retry-storm-incipient", "IS0202", Severity.WARNING)
            if n >= FAULT_FROM + 14:
                slug, code, severity = ("retry-storm", "IS0203", Severity.CRITICAL)
            found.append(
                Finding(
                    slug,
                    code,
                    severity,
                    POOL_SCOPE,
                    self.start + FAULT_FROM + 7,
                    0.92,
                    "retries feed the queue: 1.8 attempts a request, wait 5.1 s of a patience of 10 s",
                    Layer.CLIENT,
                    (
                        Evidence("queue_wait_s", 5.1, 5.0, "half of the clients' patience is spent queueing", "s"),
                        Evidence("amplification", 1.8, 1.2, "attempts for one first attempt", "ratio"),
                        Evidence("time_to_timeout_s", None, 100.0, "the queue's growth is not known", "s"),
                    ),
                    (
                        Advice("retry_budget", Optimisation.AVOID, "Cut client retries at the gateway"),
                        Advice("breaker", Optimisation.DELAY, "Limit requests in flight to what finishes in time"),
                    ),
                    POOL,
                )
            )
        if n >= FAULT_FROM + 24:
            found.append(
                Finding(
                    "engine-hung",
                    "IS0103",
                    Severity.CRITICAL,
                    Scope(ScopeKind.ENDPOINT, self.names[-1]),
                    self.start + FAULT_FROM + 24,
                    0.7,
                    f"{self.names[-1]} runs requests and makes no tokens",
                    Layer.DECODE,
                    pool=POOL,
                )
            )
        return tuple(found)

    def _readings(self, n: int) -> tuple[LeverReading, ...]:
        def pool(lever: Lever, value: float | None, ready: int | None = None) -> LeverReading:
            return LeverReading(LeverKey(lever, POOL, POOL), True, value, ready)

        held = self.limit(n) is not None
        weights = [
            LeverReading(LeverKey(Lever.WEIGHT, POOL, self.address(name)), True, 100.0) for name in self.names[:-1]
        ]
        lost = LeverReading(
            LeverKey(Lever.WEIGHT, POOL, self.address(self.names[-1])),
            False,
            reason="the gateway did not answer",
        )
        return (
            pool(Lever.SCALE, float(len(self.names)), len(self.names)),
            pool(Lever.ADMISSION, 80.0 if held else None),
            pool(Lever.RETRY_BUDGET, 20.0 if held else None),
            pool(Lever.BREAKER, self.limit(n)),
            *weights,
            *([lost] if n >= FAULT_FROM + 20 else []),
        )

    def _decision(self, n: int, at: float, findings: tuple[Finding, ...]) -> tuple[Decision, tuple[Outcome, ...]]:
        actions: list[Action] = []
        considered: list[Consideration] = []
        before, after = self.limit(n - 1), self.limit(n)
        if before != after:
            key = LeverKey(Lever.BREAKER, POOL, POOL)
            expect = Expectation("queue_wait_s", str(POOL_SCOPE), Direction.DOWN, 3.0, at + 20)
            actions.append(
                Action(
                    f"a{n}",
                    at,
                    key,
                    before,
                    after,
                    "what drains within a fifth of the patience",
                    expect=expect,
                )
            )
        if self.limit(n) is not None:
            considered.append(self._considered(after))
        if n == FAULT_FROM + 15:
            key = LeverKey(Lever.SCALE, POOL, POOL)
            considered.append(
                Consideration(
                    key,
                    (
                        Step(StepName.PROPOSED, 6.0, "offered 24.8 req/s needs 6 replicas at 80 %"),
                        Step(StepName.STABILISED, 6.0, "highest wish of the last 15 s"),
                        Step(StepName.CLAMPED, 5.0, "the fleet has room for one more"),
                        Step(StepName.BLOCKED, 4.0, "one action at a time: breaker is being verified"),
                    ),
                    "held at 4 replicas",
                )
            )
        verdicts = (Verdict(f"a{FAULT_FROM + 8}", "verified", "queue_wait_s fell to 2.4 s"),) if n == FAULT_TO else ()
        decision = Decision(
            at,
            tuple(actions),
            tuple(considered),
            verdicts,
            findings,
            PlannerState(),
            {action.id: Mode.ACT for action in actions},
        )
        outcomes = tuple(Outcome(action.id, at, Status.APPLIED, action.after) for action in actions)
        return decision, outcomes

    def _considered(self, value: float | None) -> Consideration:
        return Consideration(
            LeverKey(Lever.BREAKER, POOL, POOL),
            (
                Step(StepName.PROPOSED, 41.7, "31 req/s x 10 s x 1/5 less what is abandoned"),
                Step(StepName.LIMITED, value, "at most a quarter down a cycle"),
            ),
            "follows the queue",
        )

    def _fleet(self, n: int, at: float) -> FleetInfo:
        active = FAULT_FROM <= n < FAULT_TO
        replicas = [
            ReplicaInfo(name, self.address(name), "ready", self.start, 1.7 if active else 1.0, "b1")
            for name in self.names
        ]
        if n > FAULT_FROM + 30:
            replicas.append(ReplicaInfo("engine-4", "127.0.0.1:9099", "warming", at - 4, 1.0, "b1"))
        fault = FaultInfo("slow", self.names, 1.7, self.start + FAULT_TO)
        return FleetInfo(tuple(replicas), len(self.names), len(self.names), 8, 0.004, (fault,) if active else (), 1.0)
