"""A serving engine as a pure machine: continuous batching, chunked prefill, paged KV cache, preemption.

The scheduling follows vLLM's V1 scheduler: running sequences first, in order, then the waiting queue first
come first served, both out of one token budget a step; a sequence that finds no free block preempts the
last running one, which goes back to the head of the queue and recomputes. There is no clock and no I/O
here: `plan` decides a step at a given time, `commit` makes its tokens exist at its end. The wall-clock
driver sleeps between the two, virtual time does not; `fleetsim.virtual.engine` skips ahead instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fleetsim.jitter import Jitter
from fleetsim.prefix_cache import BlockPool, Chunk, Prefix
from fleetsim.timing import HEALTHY, Degradation, Profile, StepLoad, StepTime, StepTimer


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside an engine. Times are the caller's clock, lengths are tokens.

    `prefix` names the leading prompt tokens whose KV others may have left (see fleetsim.prefix_cache).
    `received` tokens come with their KV from another engine: they need blocks and no compute. With
    `generated` 1, the token that engine made, and all the prompt received, it decodes at once.
    `payload` is the caller's. What follows `preemptions` is the engine's and pool's bookkeeping.
    """

    request_id: int
    prompt_tokens: int
    max_tokens: int
    arrival: float
    prefix: Prefix = ()
    received: int = 0
    payload: Any = None
    computed: int = 0  # tokens whose KV is in the cache
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None  # of this engine's tokens
    last_token_at: float | None = None
    finished_at: float | None = None
    aborted: bool = False
    handed_over: int = 0  # tokens generated elsewhere, before it was submitted
    cached: int = 0  # prompt tokens found in the prefix cache when it first ran
    transferred: int = 0  # prompt tokens whose KV came with it
    shared: int = 0
    held: list[Chunk] = field(default_factory=list)
    next_chunk: int = 0
    cached_until: int = 0
    order: int = -1  # skipping engine: number of its admission while it runs
    joined: int = -1  # skipping engine: steps done when it began to decode; -1 while it does not

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.generated


def accept(sequence: Sequence, profile: Profile) -> None:
    """Check a request before it is queued; ValueError when it could never be served."""
    total = sequence.prompt_tokens + sequence.max_tokens
    if min(sequence.prompt_tokens, sequence.max_tokens) < 1 or -(-total // profile.block_size) > profile.num_blocks:
        raise ValueError(
            f"expected one prompt and one output token or more, at most {profile.kv_tokens} in all, "
            f"found {sequence.prompt_tokens} + {sequence.max_tokens}: change the request's lengths"
        )
    if sequence.generated or sequence.received:
        if not 0 <= sequence.generated < sequence.max_tokens or not 0 <= sequence.received < sequence.length:
            raise ValueError(
                f"expected tokens left to make, of at most {sequence.length - 1} received ones, found "
                f"{sequence.generated} of {sequence.max_tokens} made, {sequence.received} received: hand over less"
            )
        sequence.handed_over = sequence.generated
    if sequence.prefix:
        lengths = [tokens for _, tokens in sequence.prefix]
        if min(lengths) < 1 or sum(lengths) > sequence.prompt_tokens:
            raise ValueError(
                f"expected prefix chunks of one token or more within the prompt of {sequence.prompt_tokens}, found "
                f"{sum(lengths)} tokens, the shortest {min(lengths)}: change the prefix"
            )


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
    """The state of one engine. Every public method runs in time proportional to the batch.

    `reserve_full_prompt` lets a waiting request in only when the blocks of all its tokens are free, as vLLM
    does since 0.19 (scheduler_reserve_full_isl), and not those of its first chunk alone.
    """

    def __init__(
        self,
        profile: Profile,
        degradation: Degradation = HEALTHY,
        *,
        jitter: Jitter | None = None,
        reserve_full_prompt: bool = True,
    ) -> None:
        self.profile = profile
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.pool = BlockPool(profile.num_blocks, profile.block_size)
        self.preemptions = 0
        self._jitter = jitter
        self._reserve = reserve_full_prompt
        self.degradation = degradation

    @property
    def degradation(self) -> Degradation:
        """How slow the GPUs are; a new value applies from the next planned step."""
        return self._degradation

    @degradation.setter
    def degradation(self, degradation: Degradation) -> None:
        self._degradation = degradation
        self._timer = StepTimer(self.profile, degradation)

    @property
    def free_blocks(self) -> int:
        """Blocks that can be had, cached ones without users included."""
        return self.pool.free

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0 to 1."""
        return self.pool.usage

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; ValueError when it could never fit the KV cache."""
        accept(sequence, self.profile)
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Drop a request wherever it is; one that has finished is left alone."""
        if sequence.finished_at is not None or sequence.aborted:
            return
        sequence.aborted = True
        if sequence in self.running:
            self.running.remove(sequence)
            self.pool.release(sequence)
        else:
            self.waiting.remove(sequence)

    def flush(self) -> None:
        """Empty the prefix cache, but for what running requests use."""
        self.pool.flush()

    def plan(self, now: float) -> Step | None:
        """Schedule the next step from `now`; None when there is nothing to compute."""
        budget = self.profile.max_num_batched_tokens
        work: list[tuple[Sequence, int]] = []
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            chunk = min(sequence.length - sequence.computed, budget)
            while not self.pool.extend(sequence, sequence.computed + chunk):
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
            chunk = self.pool.admit(sequence, budget, self._reserve)
            if not chunk:
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
        load = StepLoad(*load_of(work))
        return Step(
            start=now,
            work=tuple(work),
            new_tokens=load.decode_sequences + load.prefill_tokens,
            time=self._timer.time(load, 1.0 if self._jitter is None else self._jitter.factor(now)),
        )

    def commit(self, step: Step, end: float | None = None) -> StepResult:
        """Finish a step at `end` (its planned end by default); requests aborted meanwhile get nothing."""
        at = step.end if end is None else end
        result = StepResult(at, step.time.duration_s, step.new_tokens, step.time.tensor_s, step.time.dram_s)
        for sequence, chunk in step.work:
            if sequence.aborted:
                continue
            sequence.computed += chunk
            if sequence.prefix:
                self.pool.keep(sequence)
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
                self.pool.release(sequence)
                result.finished.append(sequence)
        if result.finished:
            self.running = [s for s in self.running if s.finished_at is None]
        return result

    def step(self, now: float) -> StepResult | None:
        """Plan and finish one step at once: virtual time."""
        planned = self.plan(now)
        return None if planned is None else self.commit(planned)

    def _preempt(self, sequence: Sequence) -> None:
        self.pool.release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)


def load_of(work: Iterable[tuple[Sequence, int]]) -> tuple[int, int, int, int, float]:
    """The fields of StepLoad: a token after others is decoding, everything else is prefill."""
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
    return decoding, context, prefilling, prefill, attention
