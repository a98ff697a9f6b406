"""The paged KV cache of one engine: free blocks, blocks of running requests, and prefixes kept for reuse.

As in vLLM V1: blocks that nobody uses but whose content is known stay in the pool of free blocks until they
are needed; the least recently used go first, a prefix from its end. A request reuses the longest run of
leading chunks that are there, but always computes at least its last token. Only full blocks are shared.

Unlike vLLM, which hashes every block, content is known by chunks: a request carries `prefix`, pairs of a key
and a number of tokens, in order; a key stands for the chunk's tokens and for all before them (a Mooncake
hash id, a system prompt, a conversation's history). A chunk is evicted as a whole.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetsim.engine import Sequence

Prefix = tuple[tuple[int, int], ...]


class Chunk:
    """A cached piece of a prefix: its blocks and how many running requests use them."""

    __slots__ = ("blocks", "key", "users")

    def __init__(self, key: int, blocks: int) -> None:
        self.key = key
        self.blocks = blocks
        self.users = 1


class BlockPool:
    """Accounts for every block. A sequence's `blocks` are its own, `shared` those it has from cached chunks.

    `free` counts the blocks that can be had, cached ones without users (`idle`) included: `idle <= free`.
    """

    __slots__ = ("_chunks", "_idle", "block_size", "free", "idle", "size")

    def __init__(self, size: int, block_size: int) -> None:
        self.size = size
        self.block_size = block_size
        self.free = size
        self.idle = 0
        self._chunks: dict[int, Chunk] = {}
        # Without users, least recently used first; a plain dict would scan its deleted entries at each eviction.
        self._idle: OrderedDict[int, Chunk] = OrderedDict()

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        return 1 - self.free / self.size

    def take(self, blocks: int) -> bool:
        """Use up free blocks; False, and nothing changes, when there are not so many."""
        if blocks > self.free:
            return False
        self.free -= blocks
        if self.idle > self.free:
            self._evict()
        return True

    def extend(self, sequence: Sequence, tokens: int) -> bool:
        """Give a sequence the blocks for its first `tokens` tokens; False when there are not so many."""
        more = -(-tokens // self.block_size) - sequence.shared - sequence.blocks
        if not self.take(more):
            return False
        sequence.blocks += more
        return True

    def admit(self, sequence: Sequence, budget: int, whole: bool) -> int:
        """Let a waiting sequence in: tokens to compute in its first step, at most `budget`; 0 if it must wait.

        Sets `computed` to the tokens that need not be computed: reused ones, or the ones received with the
        request (whose KV is lost with a preemption). `whole` asks that all its tokens' blocks be free.
        """
        length = sequence.prompt_tokens + sequence.generated
        size = self.block_size
        reused = skipped = needed = 0
        chunks: list[Chunk] = []
        if sequence.prefix:
            chunks = self._leading(sequence.prefix)
            reused = min(sum(c.blocks for c in chunks), (length - 1) // size)
            skipped = reused * size
            needed = sum(c.blocks for c in chunks if not c.users)
        if sequence.received > skipped and not sequence.preemptions:
            skipped = sequence.received
        tokens = min(length - skipped, budget)
        own = -(-(skipped + tokens) // size) - reused
        if needed + (-(-length // size) - reused if whole else own) > self.free:
            return 0
        if sequence.prefix:
            for chunk in chunks:
                if not chunk.users:
                    del self._idle[chunk.key]
                chunk.users += 1
            self.free -= needed
            self.idle -= needed
            sequence.held, sequence.shared, sequence.next_chunk = chunks, reused, len(chunks)
            sequence.cached_until = sum(n for _, n in sequence.prefix[: len(chunks)])
        self.take(own)
        sequence.blocks, sequence.computed = own, skipped
        if sequence.scheduled_at is None:
            sequence.cached, sequence.transferred = reused * size, skipped - reused * size
        return tokens

    def keep(self, sequence: Sequence) -> None:
        """Make the chunks that a sequence has computed by now reusable; call it for sequences with a prefix."""
        prefix = sequence.prefix
        while sequence.next_chunk < len(prefix):
            key, tokens = prefix[sequence.next_chunk]
            end = sequence.cached_until + tokens
            if end > sequence.computed:
                return
            blocks = end // self.block_size - sequence.cached_until // self.block_size
            # Somebody else may have computed the same meanwhile: then this one's blocks remain its own.
            if key not in self._chunks and blocks <= sequence.blocks:
                chunk = self._chunks[key] = Chunk(key, blocks)
                sequence.held.append(chunk)
                sequence.blocks -= blocks
                sequence.shared += blocks
            sequence.next_chunk += 1
            sequence.cached_until = end

    def release(self, sequence: Sequence) -> None:
        """Take back all blocks of a sequence; chunks without users stay for reuse while there is room."""
        self.free += sequence.blocks
        sequence.blocks = 0
        if sequence.prefix:
            for chunk in reversed(sequence.held):
                chunk.users -= 1
                if not chunk.users:
                    self._idle[chunk.key] = chunk
                    self.free += chunk.blocks
                    self.idle += chunk.blocks
            sequence.held = []
            sequence.shared = sequence.next_chunk = sequence.cached_until = 0

    def flush(self) -> None:
        """Forget the chunks that nobody uses."""
        for key in self._idle:
            del self._chunks[key]
        self._idle.clear()
        self.idle = 0

    def _leading(self, prefix: Prefix) -> list[Chunk]:
        found: list[Chunk] = []
        for key, _ in prefix:
            chunk = self._chunks.get(key)
            if chunk is None:
                break
            found.append(chunk)
        return found

    def _evict(self) -> None:
        while self.idle > self.free:
            key, chunk = self._idle.popitem(last=False)
            self.idle -= chunk.blocks
            del self._chunks[key]
