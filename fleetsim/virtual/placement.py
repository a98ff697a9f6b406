"""Where GPUs are: nodes with places for replicas, and how many of them the cluster has."""

from __future__ import annotations


class Placement:
    """Places for `schedulable` replicas on nodes of `per_node`, the last node with the rest.

    Node k has the replicas that were placed on it: at the start those of its share, in order. A node that is
    down gives nobody a place; what is on it keeps its own.
    """

    def __init__(self, schedulable: int, per_node: int) -> None:
        self.schedulable = schedulable
        self._per_node = per_node
        self._taken: dict[int, int] = {}
        self._down: set[int] = set()  # only asked, never iterated
        self._slowdown: dict[int, float] = {}

    @property
    def taken(self) -> int:
        return sum(self._taken.values())

    def take(self) -> int | None:
        """Take a place on the first node that has one; None when there is none."""
        left = self.schedulable - self.taken
        if left <= 0:
            return None
        for first in range(0, self.schedulable, self._per_node):
            node = first // self._per_node
            places = min(self._per_node, self.schedulable - first)
            if node not in self._down and self._taken.get(node, 0) < places:
                self._taken[node] = self._taken.get(node, 0) + 1
                return node
        return None

    def give_back(self, node: int) -> None:
        self._taken[node] -= 1

    def is_down(self, node: int | None) -> bool:
        return node in self._down

    def slowdown(self, node: int | None) -> float:
        """Factor of the step times on a node."""
        return 1.0 if node is None else self._slowdown.get(node, 1.0)

    def fail(self, node: int) -> None:
        self._down.add(node)

    def slow(self, node: int, g: float) -> None:
        self._slowdown[node] = g

    def mend(self, node: int) -> None:
        self._down.discard(node)
        self._slowdown.pop(node, None)
