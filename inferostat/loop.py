"""One control cycle: sense, analyze, decide, act. No sleeping, no signals; the caller owns the schedule.

The order that keeps it honest: levers are read before the decision that assumes their values; an action is in
the journal before it is sent; a journal that cannot be written means nothing is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from actuators.model import Action, Backend, Lever, LeverKey, LeverReading, Outcome, Status
from analyzers.model import Analysis, Context, Finding, PoolSettings
from analyzers.registry import analyze
from collector.history import History
from collector.model import Frame
from inferostat.journal import Journal, JournalError
from inferostat.planner import Decision, Mode, Policy, decide
from inferostat.planner.state import PlannerState
from inferostat.recovery import OpenActions, remembered, with_episode
from inferostat.self_check import SelfCheck
from inferostat.tracing import CycleTracer

ENDPOINT_LEVERS = (Lever.WEIGHT, Lever.DRAIN, Lever.WAKE)


class Source(Protocol):
    """Where frames come from: scraping, a store, a recording, a model."""

    async def collect(self, now: float) -> Frame: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class LoopSettings:
    """What a reload may change. `levers`: which backend moves which lever of which pool."""

    interval_s: float
    freshness_s: float
    policy: Policy
    pools: Mapping[str, PoolSettings]
    levers: Mapping[tuple[str, Lever], str]


@dataclass(frozen=True)
class CycleReport:
    """What one cycle did. `sentence` says it in words; `phases` are seconds of wall time."""

    number: int
    at: float
    frame: Frame
    analysis: Analysis
    readings: tuple[LeverReading, ...]
    decision: Decision | None
    outcomes: tuple[Outcome, ...]
    sentence: str
    phases: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


class Loop:
    """Owns the state between cycles: history, the planner's memory and the last analysis."""

    def __init__(
        self,
        source: Source,
        backends: Mapping[str, Backend],
        journal: Journal,
        settings: LoopSettings,
        tracer: CycleTracer,
        retention_s: float = 1800.0,
    ) -> None:
        self.source = source
        self.backends = backends
        self.journal = journal
        self.settings = settings
        self.tracer = tracer
        self.history = History(retention_s)
        self.state = PlannerState()
        self.number = 0
        self._analysis = Analysis(0.0)
        self._phases: dict[str, float] = {}
        self._self_check = SelfCheck()
        self._open = OpenActions()

    def take_over(self, other: Loop) -> None:
        """Go on where another loop ends (a reload): its history, memory and last analysis."""
        self.history = other.history
        self.state = other.state
        self.number = other.number
        self._analysis = other._analysis
        self._self_check = other._self_check
        self._open = other._open

    def advise_only(self) -> None:
        """Take all authority away: what would be done is said, nothing is moved."""
        self.settings = replace(self.settings, policy=self.settings.policy.advising())

    async def recover(self, now: float) -> tuple[Outcome, ...]:
        """At start: settle what an earlier run left open against reality, and take up the levers it held.

        An unfinished action is never sent again: the lever is read, and the journal gets what is true. One
        whose lever cannot be read stays open, and is settled by the first cycle that can read it.
        """
        self._open = OpenActions(self.journal.unfinished())
        settled = self._open.settle(self.journal, await self._read(self._open.keys), now)
        self.state = remembered(self.journal, now)
        return tuple(outcome for _, outcome in settled)

    async def run_cycle(self, now: float, paused: bool = False) -> CycleReport:
        """One pass. Never raises for a fault outside; a fault inside is reported and nothing is done."""
        self.number += 1
        self._phases = {}
        started = time.perf_counter()
        with self.tracer.cycle(self.number) as span:
            frame, readings = await self._sense(now)
            self._self_check.check_journal(self.journal, now)
            self._take_up(readings, now)
            try:
                analysis, decision = self._think(frame, readings, paused, now)
            except Exception as error:  # a bug of ours must not stop the loop, nor move anything
                text = f"analysis failed, nothing was moved; please report it as a bug: {error!r}"
                span.record_exception(error)
                return self._report(now, frame, self._analysis, readings, None, (), text, started, repr(error))
            outcomes = await self._act(decision, now)
            report = self._report(
                now,
                frame,
                analysis,
                readings,
                decision,
                outcomes,
                _sentence(frame, analysis, decision),
                started,
            )
            span.set_attribute("inferostat.report", report.sentence)
            span.set_attribute("inferostat.findings", len(analysis.findings))
            span.set_attribute("inferostat.actions", len(decision.actions))
            return report

    def _take_up(self, readings: Sequence[LeverReading], now: float) -> None:
        """Settle what is still open before anything is decided: the next move would hide what came of it."""
        if self._self_check.journal_error is not None:
            return
        try:
            settled = self._open.settle(self.journal, readings, now)
        except JournalError as error:
            self._self_check.journal_failed(error)
            return
        for action, outcome in settled:
            self.state = with_episode(self.state.after(action, outcome), action.key, now)

    async def _sense(self, now: float) -> tuple[Frame, tuple[LeverReading, ...]]:
        with self._phase("sense"):
            frame, readings = await asyncio.gather(self.source.collect(now), self._read(self._keys()))
            self.history.append(frame)
            return frame, readings

    def _think(
        self, frame: Frame, readings: tuple[LeverReading, ...], paused: bool, now: float
    ) -> tuple[Analysis, Decision]:
        with self._phase("analyze"):
            context = Context(
                pools=self.settings.pools,
                interval_s=self.settings.interval_s,
                freshness_s=self.settings.freshness_s,
                previous=self._analysis.findings,
                previous_measures=self._analysis.measures,
                shed_first_share=_shed_shares(readings),
            )
            analysis = analyze(self.history, frame, context, now)
        with self._phase("decide"):
            policy = replace(self.settings.policy, paused=paused or self.settings.policy.paused)
            decision = decide(analysis, frame, readings, policy, self.state, now)
            self.state = decision.state
            hindered = self._self_check.find(
                readings,
                self.journal.recovered,
                self._analysis.findings,
                now,
                self.settings.freshness_s,
            )
            added = (*decision.findings, *hindered)
            analysis = replace(analysis, findings=_merged(analysis.findings, added))
        self._analysis = analysis
        return analysis, decision

    async def _act(self, decision: Decision, now: float) -> tuple[Outcome, ...]:
        with self._phase("act"):
            written = self._write_down(decision, now)
            outcomes = [await self._carry_out(action, decision, written, now) for action in decision.actions]
            for action, outcome in zip(decision.actions, outcomes, strict=True):
                self.state = self.state.after(action, outcome)
                self._heed(action, outcome, now)
            return tuple(outcomes)

    def _heed(self, action: Action, outcome: Outcome, now: float) -> None:
        """A lever that does not follow orders is left alone for a while."""
        key = action.key
        policy = self.settings.policy.pool(key.pool).lever(key.lever)
        until = self._self_check.heed(action, outcome, policy, now)
        if until is None:
            return
        self.state = self.state.with_memory(key, replace(self.state.memory(key), quarantined_until=until))
        try:
            self.journal.quarantine(key, until, "orders were not followed")
        except JournalError as error:
            self._self_check.journal_failed(error)

    def _write_down(self, decision: Decision, now: float) -> int | None:
        """Journal what was decided and judged; None when there was nothing or the journal cannot be written."""
        if not decision.actions and not decision.verdicts and not decision.findings:
            return None
        if self._self_check.journal_error is not None:  # found at the cycle's start: waiting for it again helps nobody
            return None
        try:
            for verdict in decision.verdicts:
                self.journal.verify(verdict.action_id, now, verdict.state, verdict.detail)
            for key, memory in decision.state.levers.items():
                if memory.quarantined_until > now and any(v.state == "ineffective" for v in decision.verdicts):
                    self.journal.quarantine(key, memory.quarantined_until, "moved without effect")
            return self.journal.decide(now, self.number, decision.sentence(), {"considered": decision.considered})
        except JournalError as error:
            self._self_check.journal_failed(error)
            return None  # `begin` of each action meets the same fault and says so in its outcome

    async def _carry_out(self, action: Action, decision: Decision, decision_id: int | None, now: float) -> Outcome:
        fault = self._self_check.journal_error
        if fault is not None:
            return Outcome(action.id, now, Status.FAILED, None, f"not sent: {fault}")
        mode = decision.modes[action.id]
        name = self.settings.levers[(action.key.pool, action.key.lever)]
        try:
            self.journal.begin(action, name, decision_id)
        except JournalError as error:
            fault = self._self_check.journal_failed(error)
            return Outcome(action.id, now, Status.FAILED, None, f"not sent: {fault}")
        if mode is Mode.ACT:
            outcome = await self._send(name, action, now)
        else:
            outcome = Outcome(action.id, now, Status.ADVISED, action.before, "advice: the mode does not allow acting")
        try:
            self.journal.finish(action, outcome)
        except JournalError as error:
            # the action stays open in the journal and is settled against reality once that takes writes again
            if mode is Mode.ACT:
                self._open.add(action, name)
            self._self_check.journal_failed(error)
            return replace(outcome, detail=f"{outcome.detail}; outcome not written: {error}".lstrip("; "))
        return outcome

    async def _send(self, backend: str, action: Action, now: float) -> Outcome:
        """A back end is a plug-in: whatever it raises, the loop goes on and the outcome says what happened."""
        try:
            return await self.backends[backend].apply(action, now)
        except Exception as error:
            return Outcome(action.id, now, Status.FAILED, None, f"backend {backend} failed unexpectedly: {error!r}")

    def _keys(self) -> tuple[LeverKey, ...]:
        """Every handle the configuration names: pool levers, and endpoint levers for each endpoint last seen."""
        keys: list[LeverKey] = []
        latest = self.history.latest
        for pool, lever in self.settings.levers:
            if lever not in ENDPOINT_LEVERS:
                keys.append(LeverKey(lever, pool, pool))
            elif latest is not None and pool in latest.topology.pools:
                names = latest.topology.pools[pool].endpoints
                keys += [LeverKey(lever, pool, latest.topology.endpoints[name].address) for name in names]
        return tuple(keys)

    async def _read(self, keys: Sequence[LeverKey]) -> tuple[LeverReading, ...]:
        by_backend: dict[str, list[LeverKey]] = {}
        for key in keys:
            name = self.settings.levers.get((key.pool, key.lever))
            if name is not None:
                by_backend.setdefault(name, []).append(key)
        results = await asyncio.gather(*(self._read_from(name, tuple(wanted)) for name, wanted in by_backend.items()))
        return tuple(reading for readings in results for reading in readings)

    async def _read_from(self, backend: str, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        """A back end that raises (a plug-in's bug) leaves its own levers unknown, and no others."""
        try:
            return await self.backends[backend].read(keys)
        except Exception as error:
            reason = f"expected backend {backend} to read its levers, found {error!r}; report it as its bug"
            return tuple(LeverReading(key, known=False, reason=reason) for key in keys)

    def _report(
        self,
        now: float,
        frame: Frame,
        analysis: Analysis,
        readings: tuple[LeverReading, ...],
        decision: Decision | None,
        outcomes: tuple[Outcome, ...],
        sentence: str,
        started: float,
        error: str | None = None,
    ) -> CycleReport:
        phases = {**self._phases, "total": time.perf_counter() - started}
        return CycleReport(self.number, now, frame, analysis, readings, decision, outcomes, sentence, phases, error)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        with self.tracer.phase(name):
            try:
                yield
            finally:
                self._phases[name] = time.perf_counter() - started


def _shed_shares(readings: Sequence[LeverReading]) -> dict[str, float]:
    """Share of first attempts our own admission turns away, per pool, where it is on."""
    return {
        reading.key.pool: 1.0 - reading.value / 100.0
        for reading in readings
        if reading.key.lever is Lever.ADMISSION and reading.known and reading.value is not None
    }


def _merged(found: Sequence[Finding], added: Sequence[Finding]) -> tuple[Finding, ...]:
    keys = {finding.key for finding in found}
    return (*found, *(finding for finding in added if finding.key not in keys))


def _sentence(frame: Frame, analysis: Analysis, decision: Decision) -> str:
    up = sum(1 for target in frame.targets if target.up)
    worst = max(analysis.findings, key=lambda finding: finding.severity, default=None)
    seen = f"{up} of {len(frame.targets)} targets answer"
    told = f"{len(analysis.findings)} findings, first {worst.slug}" if worst else "no findings"
    return f"{seen}; {told}; {decision.sentence()}"
