"""The engine of fleetsim.engine in virtual time, skipping ahead: same decisions, same times, fewer stops.

Between arrivals, first tokens, finishes and aborts a step only decodes, and each is longer than the one
before it by the same amount. Such a run of steps is one state with a closed form: where it stands at a time
is a root of a quadratic, its token gaps are an arithmetic progression, its blocks a sum of counters. A run
ends with the first finish, with the last step that free blocks are enough for, and with a window of the
jitter. Steps that carry prefill, and steps that must preempt, are taken one by one, exactly as
fleetsim.engine decides them; tests hold the two engines against each other.
"""

from __future__ import annotations

import math

from fleetsim.driver import Activity
from fleetsim.engine import Sequence, accept, load_of
from fleetsim.jitter import Jitter
from fleetsim.timing import HEALTHY, Degradation, Profile, StepTimer
from fleetsim.virtual.engine_run import Run
from fleetsim.virtual.engine_schedule import Schedule, Work
from fleetsim.vllm_metrics import EngineMetrics

Event = tuple[float, Sequence, bool]  # when, who, and whether it is the request's finish (else its first token)


class SkippingEngine:
    """One engine on an absolute virtual clock (s). Call `advance(now)` before anything else at `now`.

    A step in progress is never disturbed: what happens meanwhile counts from the next step on. While hung,
    nothing ends and the gauges stay; when let go, the step in progress ends at that moment or at its own.
    A step is planned the moment the one before it ends, or the moment a request reaches an idle engine.

    `next_event` says when to advance next: no first token and no finish comes before it; inf when idle or
    hung. Usually it is the time of one. At the end of a prefill chunk, of a jitter window or of the free
    blocks nothing may come of it: ask again.
    """

    __slots__ = ("_activity", "_duration", "_end", "_gauges", "_hung", "_jitter", "_load", "_metrics", "_run",
                 "_schedule", "_start", "_timer", "_work", "next_event", "now", "profile")  # fmt: skip

    def __init__(
        self,
        profile: Profile,
        degradation: Degradation = HEALTHY,
        *,
        metrics: EngineMetrics | None = None,
        jitter: Jitter | None = None,
        reserve_full_prompt: bool = True,
    ) -> None:
        self.profile = profile
        self.now = 0.0  # everything up to here is committed
        self.next_event = math.inf
        self._schedule = Schedule(profile, reserve_full_prompt)
        self._timer = StepTimer(profile, degradation)
        self._jitter = jitter
        self._activity = Activity()
        self._metrics = metrics
        # Running, waiting, free blocks and preemptions when the last step ended: what the gauges show.
        self._gauges = (0, 0, self._schedule.pool.free, 0)
        if metrics is not None:
            metrics.refresh = self._refresh
        self._hung = False
        # The step in progress, or a run of steps. A run's steps are accounted for when somebody asks or it ends.
        self._start = 0.0  # end of the last step accounted for
        self._end = math.inf  # of the step or the whole run; inf: idle
        self._run: Run | None = None
        # Of a single step: its time as planned (a hang may end it later), its chunks, and its load as the
        # number of new tokens and the seconds of tensor work and of HBM traffic at peak.
        self._duration = 0.0
        self._work: Work = []
        self._load = (0, 0.0, 0.0)

    @property
    def activity(self) -> Activity:
        """Running totals of the GPUs' work in the steps that have ended."""
        self._account()
        return self._activity

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0 to 1, those of the step in progress included."""
        self._account()
        return self._schedule.pool.usage

    @property
    def waiting_count(self) -> int:
        return len(self._schedule.waiting)

    @property
    def running_count(self) -> int:
        return len(self._schedule.running)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of the waiting requests."""
        return self._schedule.queued_tokens

    @property
    def preemptions(self) -> int:
        return self._schedule.preemptions

    @property
    def has_work(self) -> bool:
        return bool(self._schedule.running or self._schedule.waiting)

    def sequences(self) -> list[Sequence]:
        """All requests it holds, running ones first."""
        return [*self._schedule.running, *self._schedule.waiting]

    def generated(self, sequence: Sequence) -> int:
        """Tokens a request has now; its own field is brought up to date only when it stops decoding."""
        if sequence.joined < 0:
            return sequence.generated
        self._account()
        return sequence.generated + self._schedule.batch.steps - sequence.joined

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a request; ValueError when it could never fit the KV cache."""
        self._expect_advanced(now)
        accept(sequence, self.profile)
        self._schedule.enqueue(sequence)
        if self._end == math.inf:
            if not self._hung:
                self._start = now
                self._plan()
        elif self._run is not None and self._schedule.takes_next:
            self._cut(self._run)

    def abort(self, sequence: Sequence, now: float) -> None:
        """Drop a request wherever it is; one that has finished is left alone."""
        self._expect_advanced(now)
        if sequence.finished_at is not None or sequence.aborted:
            return
        sequence.aborted = True
        schedule = self._schedule
        if sequence in schedule.running:
            self._single_out()
            schedule.withdraw(sequence, 1, self._start)
        else:
            if self._run is not None and sequence is schedule.waiting[0]:
                self._cut(self._run)
            schedule.forget(sequence)
        if self._metrics is not None and not self._hung:
            self._account()
            self._note_gauges(0)

    def degrade(self, degradation: Degradation, now: float) -> None:
        """Applies from the next step on."""
        self._expect_advanced(now)
        if self._run is not None:
            self._cut(self._run)
        self._timer = StepTimer(self.profile, degradation)

    def flush(self) -> None:
        """Empty the prefix cache, but for what running requests use."""
        self._account()
        self._schedule.pool.flush()
        if self._run is not None and self._schedule.waiting:
            self._cut(self._run)

    def hang(self, hung: bool, now: float) -> None:
        """Freeze the engine where it is, or let it go on."""
        self._expect_advanced(now)
        if hung == self._hung:
            return
        self._hung = hung
        if hung:
            self._single_out()
            self.next_event = math.inf
        elif self._end < math.inf:
            self._end = self.next_event = max(self._end, now)
        else:
            self._start = now
            self._plan()

    def advance(self, now: float) -> list[Event]:
        """Commit all steps that end at or before `now`: first tokens and finishes, in order of time.

        A step's first tokens come before its finishes; an answer of one token yields both.
        """
        if not now >= self.now:
            raise ValueError(f"expected a time from {self.now} on, found {now}: time does not run back")
        self.now = now
        events: list[Event] = []
        while now >= self.next_event:
            run = self._run
            if run is None:
                self._commit_step(events)
            else:
                self._commit_run(run, run.steps)
                self._report(self._schedule.finished(self._start), events)
            if self._metrics is not None:
                self._note_gauges(0)
            self._plan()
        return events

    def _expect_advanced(self, now: float) -> None:
        if now != self.now:
            raise ValueError(f"expected a call at {self.now}, the time advanced to, found {now}: advance first")

    def _plan(self) -> None:
        """Decide the step, or the run of steps, that starts at `_start`."""
        self._run = None
        schedule = self._schedule
        if not schedule.running and not schedule.waiting:
            self._end = self.next_event = math.inf
            return
        work = schedule.plan(self._start)
        if work is None:
            self._end = self._plan_run()
        else:
            self._end = self._plan_step(work)
        self.next_event = self._end

    def _plan_step(self, work: Work) -> float:
        timer, batch = self._timer, self._schedule.batch
        decoding, context, prefills, prefill_tokens, attention = load_of(work)
        decoding += batch.size
        context += batch.context
        duration = timer.step(decoding, context, prefills, prefill_tokens, attention)
        if self._jitter is not None:
            duration *= self._jitter.factor(self._start)
        tokens = decoding + prefill_tokens
        self._load = (tokens, timer.tensor(tokens, attention), timer.dram(1, context))
        self._work = work
        self._duration = duration
        return self._start + duration

    def _plan_run(self) -> float:
        timer, batch = self._timer, self._schedule.batch
        steps = batch.until_finish()
        if steps > 1:
            steps = 1 + batch.affordable(1, steps - 1, self._schedule.undisturbed)
        first, increment = timer.decode(batch.size, batch.context), timer.decode_increment(batch.size)
        if self._jitter is None:
            run = Run(self._start, first, increment, steps)
        else:
            factor = self._jitter.factor(self._start)
            run = Run(self._start, first * factor, increment * factor, steps)
            run.cut_to_window()
        self._run = run
        return run.end

    def _cut(self, run: Run) -> None:
        """End a run with its step in progress."""
        run.cut(self.now)
        self._end = self.next_event = run.end

    def _single_out(self) -> None:
        """Make a run's step in progress a single step, so that its batch or its end may change under it."""
        run = self._run
        if run is None:
            return
        self._account()
        timer, batch = self._timer, self._schedule.batch
        self._run = None
        self._work = []
        self._duration = run.first + run.done * run.increment
        self._load = (batch.size, timer.tensor(batch.size, 0.0), timer.dram(1, batch.context))
        self._end = self.next_event = run.time(run.done + 1)

    def _account(self) -> None:
        """Account for the steps of a run that have ended."""
        run = self._run
        if run is not None and (ended := run.steps_by(self.now)) > run.done:
            self._commit_run(run, ended)
            if self._metrics is not None:
                # The gauges are those of the last step's end: without the blocks of the one in progress.
                self._note_gauges(self._schedule.batch.demand())

    def _commit_run(self, run: Run, until: int) -> None:
        """Account for the run's steps up to the `until`-th; the next one, if any, is then in progress."""
        batch, timer, activity = self._schedule.batch, self._timer, self._activity
        steps, size = until - run.done, batch.size
        # The step in progress has its blocks; those of the ones after it, and of the next in progress, come now.
        more = steps if until < run.steps else steps - 1
        if more:
            self._schedule.pool.take(batch.demand_after(1, more))
        ended = run.end if until == run.steps else run.time(until)
        activity.busy_s += ended - self._start
        activity.tensor_s += timer.tensor(steps * size, 0.0)
        activity.dram_s += timer.dram(steps, steps * batch.context + size * (steps * (steps - 1) * 0.5))
        if self._metrics is not None:
            self._metrics.observe_decodes(steps, size, run.first + run.done * run.increment, run.increment)
        batch.step(steps)
        run.done = until
        self._start = ended

    def _commit_step(self, events: list[Event]) -> None:
        schedule, metrics, activity, end = self._schedule, self._metrics, self._activity, self._end
        tokens, tensor, dram = self._load
        activity.busy_s += self._duration
        activity.tensor_s += tensor
        activity.dram_s += dram
        batch = schedule.batch
        if metrics is not None:
            metrics.observe_step(tokens, end - self._start, batch.size)
        batch.step(1)
        self._start = end
        finished = schedule.finished(end)
        for sequence, chunk in self._work:
            if sequence.aborted:
                continue
            sequence.computed += chunk
            if sequence.prefix:
                schedule.pool.keep(sequence)
            if sequence.computed < sequence.prompt_tokens + sequence.generated:
                schedule.partial = sequence
                continue
            if sequence is schedule.partial:
                schedule.partial = None
            sequence.generated += 1
            if sequence.last_token_at is None:
                sequence.first_token_at = end
                events.append((end, sequence, False))
                if metrics is not None:
                    metrics.observe_first_token(sequence)
            elif metrics is not None:
                metrics.observe_gap(end - sequence.last_token_at)
            sequence.last_token_at = end
            if sequence.generated < sequence.max_tokens:
                batch.join(sequence)
            else:
                schedule.withdraw(sequence, 0, end)
                finished.append(sequence)
        self._report(finished, events)

    def _report(self, finished: list[Sequence], events: list[Event]) -> None:
        end = self._start
        for sequence in finished:
            sequence.finished_at = end
            events.append((end, sequence, True))
            if self._metrics is not None:
                self._metrics.observe_finished(sequence)

    def _note_gauges(self, in_progress: int) -> None:
        """Remember what the gauges show; `in_progress` of the blocks in use are not to be counted."""
        schedule, free = self._schedule, self._schedule.pool.free
        self._gauges = (len(schedule.running), len(schedule.waiting), free + in_progress, schedule.preemptions)

    def _refresh(self) -> None:
        """Bring the metrics up to date."""
        self._account()
        if self._metrics is not None:
            running, waiting, free, preemptions = self._gauges
            self._metrics.settle()
            self._metrics.set_gauges(running, waiting, 1 - free / self._schedule.pool.size, preemptions)
