"""Runs an engine against the wall clock: sleeps through each step's duration, then hands out its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fleetsim.engine import Engine, Sequence, StepResult

# A late wake-up shortens the next sleep, so that timer error does not eat capacity; beyond this the lost
# time is lost, as it would be for an engine whose host stalled.
MAX_CATCH_UP_S = 0.1


class Activity:
    """Running totals of what the GPUs did, in seconds; the exporter takes differences."""

    __slots__ = ("busy_s", "dram_s", "tensor_s")

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.tensor_s = 0.0
        self.dram_s = 0.0


class Driver:
    """Steps one engine until stopped. `on_step` is called after every finished step, in the event loop."""

    def __init__(self, engine: Engine, clock: Callable[[], float], on_step: Callable[[StepResult], None]) -> None:
        self.engine = engine
        self.activity = Activity()
        self._clock = clock
        self._on_step = on_step
        self._wake = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def hung(self) -> bool:
        return not self._running.is_set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop for good: the engine's process is gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(self, sequence: Sequence) -> None:
        self.engine.submit(sequence)
        self._wake.set()

    def set_hung(self, hung: bool) -> None:
        """Freeze the engine where it is (its worker no longer answers), or let it go on."""
        if hung:
            self._running.clear()
        else:
            self._running.set()

    async def _run(self) -> None:
        end = self._clock()
        while True:
            await self._running.wait()
            start = max(end, self._clock() - MAX_CATCH_UP_S)
            step = self.engine.plan(start)
            if step is None:
                self._wake.clear()
                await self._wake.wait()
                end = self._clock()
                continue
            await asyncio.sleep(step.end - self._clock())
            if self.hung:
                await self._running.wait()
                end = self._clock()
            else:
                end = step.end
            result = self.engine.commit(step, end)
            self.activity.busy_s += result.duration_s
            self.activity.tensor_s += result.tensor_s
            self.activity.dram_s += result.dram_s
            self._on_step(result)
