"""Who moved what when: the log that policies are judged by."""

from __future__ import annotations

from dataclasses import dataclass

LIMITS = ("breaker", "admission", "retry_budget")


@dataclass(frozen=True, slots=True)
class Moved:
    """A lever that was moved. `value` None is "no limit". `target` is a replica for weight and drain, else the pool."""

    t: float
    actor: str
    lever: str
    target: str
    before: float | None
    after: float | None
    reason: str = ""

    @property
    def down(self) -> bool:
        """Whether it tightened or took away: fewer replicas, less weight, a new or a lower limit."""
        if self.lever == "drain":
            return bool(self.after)
        if self.after is None:
            return False
        return self.before is None or self.after < self.before


class MoveLog:
    """Moves in order of time; what changes nothing is not a move."""

    def __init__(self) -> None:
        self.moves: list[Moved] = []

    def add(self, move: Moved) -> None:
        if move.before != move.after:
            self.moves.append(move)
