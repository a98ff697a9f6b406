"""The stepwise engine on a virtual clock, with the interface of the skipping one: the yardstick it is held to."""

from __future__ import annotations

import math

from fleetsim.driver import Activity
from fleetsim.engine import Engine, Sequence, Step
from fleetsim.jitter import Jitter
from fleetsim.timing import HEALTHY, Degradation, Profile
from fleetsim.virtual.engine import Event
from fleetsim.vllm_metrics import EngineMetrics


class SteppingEngine:
    """Takes every step of fleetsim.engine. See SkippingEngine for what the methods promise."""

    def __init__(
        self,
        profile: Profile,
        degradation: Degradation = HEALTHY,
        *,
        metrics: EngineMetrics | None = None,
        jitter: Jitter | None = None,
        reserve_full_prompt: bool = True,
    ) -> None:
        self.engine = Engine(profile, degradation, jitter=jitter, reserve_full_prompt=reserve_full_prompt)
        self.now = 0.0
        self.activity = Activity()
        self._metrics = metrics
        self._hung = False
        self._step: Step | None = None
        self._end = math.inf

    @property
    def next_event(self) -> float:
        return math.inf if self._hung else self._end

    @property
    def preemptions(self) -> int:
        return self.engine.preemptions

    @property
    def kv_usage(self) -> float:
        return self.engine.kv_usage

    @property
    def waiting_count(self) -> int:
        return len(self.engine.waiting)

    @property
    def running_count(self) -> int:
        return len(self.engine.running)

    def advance(self, now: float) -> list[Event]:
        self.now = now
        events: list[Event] = []
        while self._step is not None and now >= self._end and not self._hung:
            result = self.engine.commit(self._step, self._end)
            self.activity.busy_s += result.duration_s
            self.activity.tensor_s += result.tensor_s
            self.activity.dram_s += result.dram_s
            if self._metrics is not None:
                self._metrics.observe(self.engine, result)
            events += [(result.end, sequence, False) for sequence in result.first_tokens]
            events += [(result.end, sequence, True) for sequence in result.finished]
            self._plan(self._end)
        return events

    def submit(self, sequence: Sequence, now: float) -> None:
        self.engine.submit(sequence)
        if self._step is None and not self._hung:
            self._plan(now)

    def abort(self, sequence: Sequence, now: float) -> None:
        if sequence.finished_at is not None or sequence.aborted:
            return
        self.engine.abort(sequence)
        if self._metrics is not None and not self._hung:
            self._metrics.observe_gauges(self.engine)

    def degrade(self, degradation: Degradation, now: float) -> None:
        self.engine.degradation = degradation

    def flush(self) -> None:
        self.engine.flush()

    def hang(self, hung: bool, now: float) -> None:
        if self._hung and not hung:
            if self._step is not None:
                self._end = max(self._end, now)
            else:
                self._plan(now)
        self._hung = hung

    def _plan(self, now: float) -> None:
        self._step = self.engine.plan(now)
        self._end = math.inf if self._step is None else self._step.end
