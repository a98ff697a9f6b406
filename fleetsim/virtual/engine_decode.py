"""The decoding part of a batch, kept so that many steps cost no more than one.

All decoding sequences get one token in every step. So one counter of steps tells how far each has come: who
finishes next comes from a heap keyed by the counter's value at its end, and how many blocks a step needs from
`block_size` counters, because a sequence needs a new block in every `block_size`-th step from some residue on.
"""

from __future__ import annotations

from heapq import heappop, heappush

from fleetsim.engine import Sequence


class DecodeBatch:
    """`size` sequences with `context` tokens in all, after `steps` steps. Public attributes are read-only outside."""

    __slots__ = ("_block_size", "_due", "_residues", "context", "size", "steps")

    def __init__(self, block_size: int) -> None:
        self.size = 0
        self.context = 0
        self.steps = 0
        self._block_size = block_size
        self._residues = [0] * block_size
        self._due: list[tuple[int, int, Sequence]] = []

    def join(self, sequence: Sequence) -> None:
        """A running sequence (`order` set, all its tokens but the last computed) decodes from the next step on."""
        steps = self.steps
        sequence.joined = steps
        self.size += 1
        self.context += sequence.computed
        self._residues[(steps - sequence.computed) % self._block_size] += 1
        heappush(self._due, (steps + sequence.max_tokens - sequence.generated, sequence.order, sequence))

    def leave(self, sequence: Sequence, in_progress: int) -> None:
        """Take a sequence out and bring its fields up to date; it holds blocks for `in_progress` more tokens (0, 1)."""
        self._residues[(sequence.joined - sequence.computed) % self._block_size] -= 1
        done = self.steps - sequence.joined
        sequence.joined = sequence.order = -1
        sequence.generated += done
        sequence.computed += done
        self.size -= 1
        self.context -= sequence.computed
        sequence.blocks = -(-(sequence.computed + in_progress) // self._block_size) - sequence.shared

    def step(self, steps: int) -> None:
        """Everybody gets so many tokens."""
        self.steps += steps
        self.context += steps * self.size

    def until_finish(self) -> int:
        """Steps until the first one finishes. Only for a batch that is not empty."""
        due = self._due
        while due[0][2].order != due[0][1]:  # left before its end
            heappop(due)
        return due[0][0] - self.steps

    def due(self) -> list[Sequence]:
        """Those that have all their tokens now, in order of admission; they must be taken out."""
        due, steps = self._due, self.steps
        found: list[Sequence] = []
        while due and due[0][0] <= steps:
            _, order, sequence = heappop(due)
            if sequence.order == order:
                found.append(sequence)
        return found

    def needs_block(self, sequence: Sequence) -> bool:
        """Whether the next step takes a new block for a sequence."""
        return (sequence.joined - sequence.computed - self.steps) % self._block_size == 0

    def demand(self) -> int:
        """New blocks that the next step takes."""
        return self._residues[self.steps % self._block_size]

    def demand_after(self, skip: int, steps: int) -> int:
        """New blocks that `steps` steps take, after the next `skip` ones."""
        size, residues = self._block_size, self._residues
        cycles, rest = divmod(steps, size)
        start = (self.steps + skip) % size
        end = start + rest
        part = sum(residues[start:end]) if end <= size else self.size - sum(residues[end - size : start])
        return cycles * self.size + part

    def affordable(self, skip: int, steps: int, free: int) -> int:
        """How many of `steps` steps, after the next `skip` ones, `free` blocks are enough for."""
        size, residues = self._block_size, self._residues
        cycles = free // self.size
        if cycles * size >= steps:
            return steps
        found, left = cycles * size, free - cycles * self.size
        step = self.steps + skip + found
        # Less than a cycle's blocks are left, so this ends within one cycle.
        while found < steps and residues[step % size] <= left:
            left -= residues[step % size]
            found += 1
            step += 1
        return found
