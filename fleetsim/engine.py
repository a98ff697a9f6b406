"""A serving engine as a pure machine: continuous batching, chunked prefill, paged KV cache, preemption.

The scheduling follows vLLM's V1 scheduler: running sequences first, in order, then the waiting queue first
come first served, both out of one token budget a step; a sequence that finds no free block preempts the
last running one, which goes back to the head of the queue and recomputes. There is no clock and no I/O
here: `plan` decides a step at a given time, `commit` makes its tokens exist at its end. The wall-clock
driver sleeps between the two, virtual time does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleetsim.timing import HEALTHY, Degradation, Profile, StepLoad, StepTime, step_time


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside an engine. Times are the caller's clock, lengths are tokens."""

    request_id: int
    prompt_tokens: int
    max_tokens: int
    arrival: float
    computed: int = 0  # tokens whose KV is in the cache
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    finished_at: float | None = None
    aborted: bool = False

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.generated


@dataclass(frozen=True, slots=True)
class Step:
    """A decided step: who computes how many tokens, and how long it takes from `start`."""

    start: float
    work: tuple[tuple[Sequence, int], ...]
    new_tokens: int
    time: StepTime

    @property
    def end(self) -> float:
        return self.start + self.time.duration_s


@dataclass(slots=True)
class StepResult:
    """What a finished step produced: each sequence that got a token, and the gap since its token before."""

    end: float
    duration_s: float
    new_tokens: int
    tensor_s: float
    dram_s: float
    first_tokens: list[Sequence] = field(default_factory=list)
    gaps: list[tuple[Sequence, float]] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)

    def emitted(self) -> Iterator[Sequence]:
        yield from self.first_tokens
        for sequence, _ in self.gaps:
            yield sequence


class Engine:
    """The state of one engine. Every public method runs in time proportional to the batch."""

    def __init__(self, profile: Profile, degradation: Degradation = HEALTHY) -> None:
        self.profile = profile
        self.degradation = degradation
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.free_blocks = profile.num_blocks
        self.preemptions = 0

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0 to 1."""
        return 1 - self.free_blocks / self.profile.num_blocks

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; ValueError when it could never fit the KV cache."""
        needed = self._blocks_for(sequence.prompt_tokens + sequence.max_tokens)
        if min(sequence.prompt_tokens, sequence.max_tokens) < 1 or needed > self.profile.num_blocks:
            raise ValueError(
                f"expected one prompt and one output token or more, at most {self.profile.kv_tokens} in all, "
                f"found {sequence.prompt_tokens} + {sequence.max_tokens}: change the request's lengths"
            )
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Drop a request wherever it is; one that has finished is left alone."""
        if sequence.finished_at is not None or sequence.aborted:
            return
        sequence.aborted = True
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)
        else:
            self.waiting.remove(sequence)

    def plan(self, now: float) -> Step | None:
        """Schedule the next step from `now`; None when there is nothing to compute."""
        budget = self.profile.max_num_batched_tokens
        work: list[tuple[Sequence, int]] = []
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            chunk = min(sequence.length - sequence.computed, budget)
            while not self._allocate(sequence, chunk):
                preempted = True
                victim = self.running.pop()
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                work.append((sequence, chunk))
                budget -= chunk
                index += 1
                continue
            break
        # A sequence that has just been thrown out must not come back in the same step.
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.profile.max_num_seqs:
            sequence = self.waiting[0]
            chunk = min(sequence.length - sequence.computed, budget)
            if not self._allocate(sequence, chunk):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            if sequence.scheduled_at is None:
                # A late wake-up may plan from a moment just before the request came.
                sequence.scheduled_at = max(now, sequence.arrival)
            work.append((sequence, chunk))
            budget -= chunk
        if not work:
            return None
        load = _load_of(work)
        return Step(
            start=now,
            work=tuple(work),
            new_tokens=load.decode_sequences + load.prefill_tokens,
            time=step_time(self.profile, load, self.degradation),
        )

    def commit(self, step: Step, end: float | None = None) -> StepResult:
        """Finish a step at `end` (its planned end by default); requests aborted meanwhile get nothing."""
        at = step.end if end is None else end
        result = StepResult(at, step.time.duration_s, step.new_tokens, step.time.tensor_s, step.time.dram_s)
        for sequence, chunk in step.work:
            if sequence.aborted:
                continue
            sequence.computed += chunk
            if sequence.computed < sequence.length:
                continue  # an unfinished prefill yields no token
            sequence.generated += 1
            if sequence.last_token_at is None:
                sequence.first_token_at = at
                result.first_tokens.append(sequence)
            else:
                result.gaps.append((sequence, at - sequence.last_token_at))
            sequence.last_token_at = at
            if sequence.generated >= sequence.max_tokens:
                sequence.finished_at = at
                self._release(sequence)
                result.finished.append(sequence)
        if result.finished:
            self.running = [s for s in self.running if s.finished_at is None]
        return result

    def step(self, now: float) -> StepResult | None:
        """Plan and finish one step at once: virtual time."""
        planned = self.plan(now)
        return None if planned is None else self.commit(planned)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.profile.block_size)

    def _allocate(self, sequence: Sequence, chunk: int) -> bool:
        more = self._blocks_for(sequence.computed + chunk) - sequence.blocks
        if more > self.free_blocks:
            return False
        sequence.blocks += more
        self.free_blocks -= more
        return True

    def _release(self, sequence: Sequence) -> None:
        self.free_blocks += sequence.blocks
        sequence.blocks = 0

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)


def _load_of(work: list[tuple[Sequence, int]]) -> StepLoad:
    decoding = context = prefilling = prefill = 0
    attention = 0.0
    for sequence, chunk in work:
        if chunk == 1 and sequence.generated:
            decoding += 1
            context += sequence.computed
        else:
            prefilling += 1
            prefill += chunk
            attention += chunk * (sequence.computed + chunk / 2)
    return StepLoad(decoding, context, prefilling, prefill, attention)
