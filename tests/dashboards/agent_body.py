"""The agent's /metrics without an agent: its own telemetry, fed one quiet cycle at each scrape."""

from __future__ import annotations

import time

from prometheus_client import generate_latest

from actuators.model import Lever, LeverKey, LeverReading, Status
from analyzers.model import Analysis, Finding, Layer, Measure, Scope, ScopeKind, Severity
from collector.model import Frame, Table, TargetRole, TargetStatus, Topology
from inferostat.present import POOL_METRICS, CycleFacts
from inferostat.telemetry import PHASES, Telemetry

POOL = Scope(ScopeKind.POOL, "default")


class AgentBody:
    """Callable that gives the next body."""

    def __init__(self) -> None:
        self._telemetry = Telemetry("0", "act", time.time)
        self._telemetry.configuration_loaded(True, time.time())
        self._telemetry.paused(False)

    def __call__(self) -> bytes:
        for phase in PHASES:
            self._telemetry.phase_done(phase, 0.02)
        self._telemetry.action_done(Lever.WEIGHT, Status.APPLIED)
        self._telemetry.cycle_done("ok", _facts(time.time()))
        return generate_latest(self._telemetry.registry)


def _facts(now: float) -> CycleFacts:
    empty = Table.empty((), ())
    targets = tuple(
        TargetStatus(role.value, role, "http://127.0.0.1", up=True, scraped_at=now) for role in TargetRole
    )
    vulnerable = Finding("vulnerable", "IS0201", Severity.INFO, POOL, now, 1.0, "", Layer.CLIENT)
    levers = {Lever.SCALE: 4.0, Lever.ADMISSION: 90.0}
    return CycleFacts(
        now,
        Frame(now, empty, empty, empty, Topology(), targets),
        Analysis(now, (vulnerable,), tuple(Measure(name, POOL, 1.5) for name in POOL_METRICS)),
        tuple(
            LeverReading(LeverKey(lever, "default", "default"), True, value)
            for lever, value in levers.items()
        ),
    )
