"""Who computes what in the next step: fleetsim.engine's rules, without touching each decoding sequence."""

from __future__ import annotations

from collections import deque

from fleetsim.engine import Sequence
from fleetsim.prefix_cache import BlockPool
from fleetsim.timing import Profile
from fleetsim.virtual.engine_decode import DecodeBatch

Work = list[tuple[Sequence, int]]  # sequences that are not just decoding, and their tokens in a step


class Schedule:
    """Queue, running batch and KV blocks of one engine. `batch` are the running ones that just decode."""

    __slots__ = ("_admissions", "_budget", "_max_seqs", "_reserve", "batch", "blocked", "partial", "pool",
                 "preemptions", "queued_tokens", "running", "waiting")  # fmt: skip

    def __init__(self, profile: Profile, reserve_full_prompt: bool) -> None:
        self.pool = BlockPool(profile.num_blocks, profile.block_size)
        self.batch = DecodeBatch(profile.block_size)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}  # in order of admission
        self.partial: Sequence | None = None  # the one whose prefill goes on; always the last running
        self.blocked = False  # the first waiting one does not fit as long as everybody just decodes
        self.queued_tokens = 0  # prompt tokens of the waiting ones
        self.preemptions = 0
        self._admissions = 0
        self._budget = profile.max_num_batched_tokens
        self._max_seqs = profile.max_num_seqs
        self._reserve = reserve_full_prompt

    @property
    def takes_next(self) -> bool:
        """Whether a request that came to the end of an empty queue would be tried in the next step."""
        return not self.blocked and len(self.running) < self._max_seqs

    @property
    def undisturbed(self) -> int:
        """Blocks that decoding can take before anything changes for the others.

        Beyond the free ones somebody is thrown out. Beyond the empty ones cached chunks go, and a blocked
        request that was to reuse them skips less, so that its first step may need fewer blocks, and fit.
        """
        pool = self.pool
        return pool.free - pool.idle if self.blocked and self.waiting[0].prefix else pool.free

    def enqueue(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)
        self.queued_tokens += sequence.prompt_tokens

    def forget(self, sequence: Sequence) -> None:
        """Take a sequence out of the queue."""
        self.waiting.remove(sequence)
        self.queued_tokens -= sequence.prompt_tokens

    def plan(self, now: float) -> Work | None:
        """Give out the blocks of the step that starts at `now`, and let waiting ones in.

        None: all that run decode, and go on so until one of them finishes or a request comes; the blocks of
        the first such step are taken. Otherwise what is done beside decoding in this one step; it may be
        empty, after a preemption.
        """
        batch, pool = self.batch, self.pool
        self.blocked = False
        preempted = not pool.take(batch.demand())
        if preempted:
            self._make_room(now)
        budget = self._budget - batch.size
        work: Work = []
        partial = self.partial
        if partial is not None and budget:
            chunk = min(partial.length - partial.computed, budget)
            if pool.extend(partial, partial.computed + chunk):
                work.append((partial, chunk))
                budget -= chunk
            else:
                self._preempt(partial, now)
                preempted = True
        # A sequence that has just been thrown out must not come back in the same step.
        if self.waiting and not preempted:
            self._admit(work, budget, now)
        return work if work or preempted or self.partial is not None else None

    def withdraw(self, sequence: Sequence, in_progress: int, now: float) -> None:
        """Take out a running sequence; a decoding one has blocks for `in_progress` more tokens (0 or 1).

        `now` is the end of the last step, when a decoding one got its last token.
        """
        if sequence.joined >= 0:
            self.batch.leave(sequence, in_progress)
            sequence.last_token_at = now
        elif sequence is self.partial:
            self.partial = None
        del self.running[sequence]
        self.pool.release(sequence)

    def finished(self, now: float) -> list[Sequence]:
        """Take out those whose last token came with the step that ended `now`, in order."""
        found = self.batch.due()
        for sequence in found:
            self.withdraw(sequence, 0, now)
        return found

    def _admit(self, work: Work, budget: int, now: float) -> None:
        running, waiting = self.running, self.waiting
        while waiting and budget and len(running) < self._max_seqs:
            sequence = waiting[0]
            chunk = self.pool.admit(sequence, budget, self._reserve)
            if not chunk:
                self.blocked = True
                return
            waiting.popleft()
            self.queued_tokens -= sequence.prompt_tokens
            self._admissions += 1
            sequence.order = self._admissions
            running[sequence] = None
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now
            work.append((sequence, chunk))
            budget -= chunk

    def _make_room(self, now: float) -> None:
        """Give the decoding sequences their blocks in order, throwing out the last running until it suffices.

        A prefill that goes on is the last running one, so it is gone before anybody asks for its blocks.
        """
        order = list(self.running)
        index = 0
        while index < len(order):
            sequence = order[index]
            if self.batch.needs_block(sequence):
                while not self.pool.take(1):
                    victim = order.pop()
                    self._preempt(victim, now)
                    if victim is sequence:
                        return
            index += 1

    def _preempt(self, sequence: Sequence, now: float) -> None:
        self.withdraw(sequence, 0, now)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)
        self.queued_tokens += sequence.prompt_tokens
