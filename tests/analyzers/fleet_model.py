"""A toy fleet in virtual time that yields one frame a second: engines with batches and queues, clients that
retry.

Only for tests of analyzers. Step time follows a line in the batch and the prefill work, so that a fleet at 80
percent of its capacity tips into a storm when all engines are 1.7 times slower.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from collector.model import Frame, Histogram
from tests.analyzers.frames import BOUNDS, frame, topology

STEP_S = 0.05
LENGTHS = np.array([50.0, 100.0, 150.0, 200.0, 500.0, float("inf")])


@dataclass(eq=False, slots=True)
class _Work:
    task: _Task
    engine: _Engine
    arrived: float
    left: float
    total: float
    first_token: float | None = None
    gone: bool = False


@dataclass(eq=False, slots=True)
class _Task:
    attempt: int = 0
    done: bool = False


@dataclass
class Counts:
    bounds: np.ndarray  # type: ignore[type-arg]
    counts: np.ndarray = field(init=False)  # type: ignore[type-arg]
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.bounds.size)

    def add(self, value: float, times: float = 1.0) -> None:
        self.counts[np.searchsorted(self.bounds, value) :] += times
        self.sum += value * times

    def snapshot(self) -> Histogram:
        return Histogram(self.bounds, self.counts.copy(), self.sum)


@dataclass(eq=False)
class _Engine:
    name: str
    build: str = "b1"
    slower: float = 1.0
    running: list[_Work] = field(default_factory=list)
    waiting: deque[_Work] = field(default_factory=deque)
    active: int = 0
    attempts: int = 0
    tokens: float = 0.0
    prompts: float = 0.0
    finished: int = 0
    prefill: float = 0.0
    ttft: Counts = field(default_factory=lambda: Counts(BOUNDS))
    itl: Counts = field(default_factory=lambda: Counts(BOUNDS))
    queue: Counts = field(default_factory=lambda: Counts(BOUNDS))
    lengths: Counts = field(default_factory=lambda: Counts(LENGTHS))


class Fleet:
    """`rate(t)` first attempts a second, `slowness(t, engine)` factor of its step time, `prompt(t)` mean
    tokens.
    """

    def __init__(
        self,
        *,
        rate: Callable[[float], float],
        slowness: Callable[[float, str], float] = lambda t, e: 1.0,
        prompt: Callable[[float], float] = lambda t: 500.0,
        engines: int = 4,
        batch: int = 32,
        timeout_s: float = 10.0,
        on_answer: bool = True,
        aborts: bool = True,
        retries: int = 2,
        seed: int = 1,
        builds: tuple[str, ...] = ("b1",),
    ) -> None:
        self.engines = [_Engine(f"engine-{i}", builds[i % len(builds)]) for i in range(engines)]
        self._rate, self._slowness, self._prompt = rate, slowness, prompt
        self._batch, self._timeout, self._on_answer = batch, timeout_s, on_answer
        self._aborts, self._retries, self._random = aborts, retries, random.Random(seed)
        self._events: list[tuple[float, int, str, object]] = []
        self._order = itertools.count()
        self.route = dict.fromkeys(
            ("arrivals", "first_sent", "retry_sent", "attempts", "upstream_2xx", "client_disconnects"), 0.0
        )
        self.served = 0

    def _at(self, when: float, what: str, about: object) -> None:
        heapq.heappush(self._events, (when, next(self._order), what, about))

    def frames(self, seconds: int) -> Iterator[Frame]:
        now, due = 0.0, 0.0
        for second in range(1, seconds + 1):
            while now < second - 1e-9:
                now += STEP_S
                while due <= now:
                    self._at(due, "arrive", _Task())
                    due += self._random.expovariate(self._rate(now))
                while self._events and self._events[0][0] <= now:
                    when, _, what, about = heapq.heappop(self._events)
                    self._handle(when, what, about)
                for engine in self.engines:
                    self._step(engine, now)
            yield self._frame(float(second))

    def _handle(self, now: float, what: str, about: object) -> None:
        if what == "arrive":
            assert isinstance(about, _Task)
            self._send(now, about)
        elif isinstance(about, _Work) and not about.gone and (self._on_answer or about.first_token is None):
            self._give_up(now, about)

    def _send(self, now: float, task: _Task) -> None:
        engine = min(self.engines, key=lambda e: (e.active, self._random.random()))
        length = float(self._random.randint(100, 200))
        work = _Work(task, engine, now, length, length)
        engine.waiting.append(work)
        engine.active += 1
        engine.attempts += 1
        self.route["arrivals"] += 1
        self.route["attempts"] += 1
        self.route["first_sent" if task.attempt == 0 else "retry_sent"] += 1
        self._at(now + self._timeout, "timeout", work)

    def _give_up(self, now: float, work: _Work) -> None:
        work.gone = True
        work.engine.active -= 1
        self.route["client_disconnects"] += 1
        if self._aborts:
            if work in work.engine.running:
                work.engine.running.remove(work)
            elif work in work.engine.waiting:
                work.engine.waiting.remove(work)
        if work.task.attempt < self._retries:
            work.task.attempt += 1
            self._at(now + 0.5 * 2**work.task.attempt * (1 - 0.25 * self._random.random()), "arrive", work.task)

    def _step(self, engine: _Engine, now: float) -> None:
        while engine.waiting and len(engine.running) < self._batch:
            work = engine.waiting.popleft()
            tokens = self._prompt(now) * self._random.uniform(0.6, 1.4)
            engine.prefill += tokens
            engine.prompts += tokens
            engine.queue.add(now - work.arrived)
            engine.running.append(work)
        if not engine.running:
            return
        # Tokens of prefill in a step share its time with the decode of the whole batch.
        share = min(engine.prefill, 40_000 * STEP_S)
        engine.prefill -= share
        slower = self._slowness(now, engine.name)
        available = max(STEP_S - slower * share * 70e-6, 0.1 * STEP_S)
        itl = slower * (0.017 + 70e-6 * len(engine.running) + 17e-6 * len(engine.running))
        made = available / itl
        for work in list(engine.running):
            if work.first_token is None and made > 0:
                work.first_token = now
                engine.ttft.add(now - work.arrived)
                if not work.gone:
                    self.route["upstream_2xx"] += 0 if self._on_answer else 1
            given = min(made, work.left)
            work.left -= given
            engine.tokens += given
            engine.itl.add(STEP_S / made, given)
            if work.left <= 0:
                self._finish(engine, work)

    def _finish(self, engine: _Engine, work: _Work) -> None:
        engine.running.remove(work)
        engine.finished += 1
        engine.lengths.add(work.total)
        if not work.gone:
            work.gone, engine.active = True, engine.active - 1
            self.served += 1
            if self._on_answer:
                self.route["upstream_2xx"] += 1

    def _frame(self, at: float) -> Frame:
        rows = {
            e.name: {
                "requests_running": float(len(e.running)),
                "requests_waiting": float(len(e.waiting)),
                "generation_tokens": np.floor(e.tokens),
                "prompt_tokens": np.floor(e.prompts),
                "requests_by_finish_reason.stop": float(e.finished),
                "gateway_attempts": float(e.attempts),
                "gateway_active": float(e.active),
                "gateway_errors": 0.0,
                "preemptions": 0.0,
                "kv_cache_usage": 0.3,
                "ttft": e.ttft.snapshot(),
                "itl": e.itl.snapshot(),
                "tpot": e.itl.snapshot(),
                "queue_time": e.queue.snapshot(),
                "request_generation_tokens": e.lengths.snapshot(),
            }
            for e in self.engines
        }
        route = {
            **self.route,
            "overflow": 0.0,
            "direct_responses": 0.0,
            "upstream_5xx": 0.0,
            "first_503": 0.0,
            "retry_503": 0.0,
            "active": float(sum(e.active for e in self.engines)),
        }
        where = topology(rows, routes=("llm",), builds={e.name: e.build for e in self.engines})
        return frame(at, rows, routes={"llm": route}, where=where)
