"""Backend `dry_run`: levers that move in memory only, to see what would be done."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from actuators.model import Action, Lever, LeverKey, LeverReading, LeverValue, Outcome
from actuators.options import Options, parse_options
from actuators.writing import needs_write, outcome


class DryRunOptions(Options):
    """Options of the backend: the levers it stands for, and where they stand at first, as `lever:target`."""

    levers: tuple[Lever, ...] = tuple(Lever)
    values: dict[str, float | None] = Field(default_factory=dict)


class DryRunBackend:
    """Accepts everything. `actions` is what was carried out, oldest first."""

    def __init__(self, name: str, options: DryRunOptions) -> None:
        self.name = name
        self.levers: frozenset[Lever] = frozenset(options.levers)
        self.actions: list[Action] = []
        self._first = options.values
        self._values: dict[LeverKey, LeverValue] = {}

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, object]) -> DryRunBackend:
        return cls(name, parse_options(DryRunOptions, name, options))

    async def read(self, keys: tuple[LeverKey, ...]) -> tuple[LeverReading, ...]:
        return tuple(self._reading(key) for key in keys)

    async def apply(self, action: Action, now: float) -> Outcome:
        return await outcome(action, now, self.levers, self._write)

    async def close(self) -> None:
        """Nothing is open."""

    def _reading(self, key: LeverKey) -> LeverReading:
        value = self._values.get(key, self._first.get(str(key)))
        return LeverReading(key, known=True, value=value, ready=_whole(value) if key.lever is Lever.SCALE else None)

    async def _write(self, action: Action) -> None:
        if any(done.id == action.id for done in self.actions):
            return
        if action.key not in self._values and str(action.key) not in self._first:
            self._values[action.key] = action.before  # never read anywhere: the decision's word counts
        if needs_write(action, self._reading(action.key)):
            self._values[action.key] = action.after
            self.actions.append(action)


def _whole(value: LeverValue) -> int | None:
    return None if value is None else int(value)
