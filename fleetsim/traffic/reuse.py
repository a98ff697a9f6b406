"""Prefix reuse: shared system prompts, and conversations whose next turn repeats the last one's prompt.

Lengths come first and conversations are fitted to them, so that a family's lengths stay as calibrated: a request that
continues wants a context of some share of its own prompt, and takes a waiting conversation about that long. The answer
of a turn is not counted as reusable for the next one (the traces' block ids cover prompts only).
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import log, log2

from fleetsim.traffic.random_streams import BLOCK, generator

Chunks = tuple[tuple[int, int], ...]
Context = tuple[int, Chunks]  # a conversation so far: its tokens and their chunks

BUCKETS_PER_OCTAVE = 4  # of context length, to find a conversation of about a wanted length
LOOK_DOWN = 8  # buckets, two octaves: farther down, a new conversation is more like the traffic
WAITING_PER_BUCKET = 512  # the newest; bounds the memory


@dataclass(frozen=True, slots=True)
class Reuse:
    """`continues`: share of prompts of at least `shortest` tokens that try to continue a conversation. Their context is
    a Beta distributed share of the prompt; a conversation can go on after a lognormal think time (answer included).
    """

    system_prompts: int
    system_tokens: int
    continues: float
    shortest: int
    context_beta: tuple[float, float]
    think_median_s: float
    think_sigma: float


class Conversations:
    """Gives each prompt its chunks. Calls must come in order of time."""

    def __init__(self, reuse: Reuse, purpose: str) -> None:
        self._reuse = reuse
        self._draws = self._drawn(purpose)
        # Keys of two streams must not meet when the streams are merged.
        self._key = random.Random(f"{purpose}-keys").getrandbits(30) << 32
        self._roots = [((self._new_key(), reuse.system_tokens),) for _ in range(reuse.system_prompts)]
        self._now = 0  # whole seconds: conversations become ready at the end of one
        self._thinking: defaultdict[int, list[Context]] = defaultdict(list)  # by the second in which they become ready
        self._waiting: defaultdict[int, deque[Context]] = defaultdict(  # by bucket, newest last
            lambda: deque(maxlen=WAITING_PER_BUCKET)
        )

    def _new_key(self) -> int:
        self._key += 1
        return self._key

    def _drawn(self, purpose: str) -> Iterator[tuple[bool, float, int, float]]:
        """(continues, share of the prompt wanted as context, system prompt, think time in s), without end."""
        rng, reuse = generator(purpose), self._reuse
        while True:
            continues = rng.random(BLOCK) < reuse.continues
            shares = rng.beta(*reuse.context_beta, BLOCK)
            roots = rng.integers(reuse.system_prompts, size=BLOCK)
            thinks = rng.lognormal(log(reuse.think_median_s), reuse.think_sigma, BLOCK)
            yield from zip(continues.tolist(), shares.tolist(), roots.tolist(), thinks.tolist(), strict=True)

    def chunks(self, t: float, prompt: int) -> Chunks:
        """The chunks of a prompt of so many tokens that arrives at t; they cover all of it."""
        if t >= self._now + 1:
            self._wake(int(t))
        continues, share, root, think = next(self._draws)
        reuse = self._reuse
        context = self._continued(prompt, share) if continues and prompt >= reuse.shortest else None
        if context is None:
            context = (reuse.system_tokens, self._roots[root]) if prompt > reuse.system_tokens else (0, ())
        tokens, shared = context
        self._key = key = self._key + 1
        chunks = (*shared, (key, prompt - tokens))
        self._thinking[int(t + think)].append((prompt, chunks))
        return chunks

    def _wake(self, now: int) -> None:
        """Conversations whose think time has passed wait for a prompt to continue them."""
        waiting = self._waiting
        for second in range(self._now, now):
            for context in self._thinking.pop(second, ()):
                waiting[int(BUCKETS_PER_OCTAVE * log2(context[0]))].append(context)
        self._now = now

    def _continued(self, prompt: int, share: float) -> Context | None:
        """The newest waiting conversation of about the wanted length and shorter than the prompt."""
        wanted = int(BUCKETS_PER_OCTAVE * log2(max(1.0, share * prompt)))
        for bucket in range(wanted, wanted - LOOK_DOWN, -1):
            waiting = self._waiting[bucket]
            if waiting and waiting[-1][0] < prompt:
                return waiting.pop()
        return None
