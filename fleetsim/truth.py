"""What a scenario knows and a controller does not: what happened, and which moves are right or wrong."""

from __future__ import annotations

from typing import Literal

from fleetsim.settings import Seconds, Strict


class Move(Strict):
    """A kind of move. `down` tightens or takes away (fewer replicas, less weight, a lower limit), `up` gives back.

    `targets`: endpoint levers only, replica names. The window is in seconds from the start; open where None.
    """

    lever: Literal["scale", "weight", "breaker", "admission", "retry_budget", "drain", "any"]
    direction: Literal["up", "down", "any"] = "any"
    targets: list[str] | Literal["all"] = "all"
    from_s: Seconds = 0.0
    until_s: Seconds | None = None
    why: str = ""

    def covers(self, t: float, lever: str, target: str, down: bool) -> bool:
        """Whether a move at `t` seconds is of this kind."""
        return (
            self.lever in (lever, "any")
            and self.direction in ("any", "down" if down else "up")
            and (self.targets == "all" or target in self.targets)
            and self.from_s <= t
            and (self.until_s is None or t < self.until_s)
        )


class Truth(Strict):
    """`what` happened in a sentence; `layer` and `where` name the cause; `findings` are slugs a diagnosis should
    give, `not_findings` those it must not. `wrong` moves count against a policy, `right` ones are told."""

    what: str
    layer: str | None = None
    where: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    not_findings: tuple[str, ...] = ()
    right: tuple[Move, ...] = ()
    wrong: tuple[Move, ...] = ()
