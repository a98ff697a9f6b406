"""Clients in virtual time: each call an SDK client of its own, open loop; time-outs, retries, throttling, outcomes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from fleetsim import settings
from fleetsim.request import Outcome
from fleetsim.sdk import delay_s, should_retry
from fleetsim.traffic.arrival import Arrival
from fleetsim.virtual.attempt import RESET, Attempt
from fleetsim.virtual.deadlines import Deadlines
from fleetsim.virtual.gateway import Gateway
from fleetsim.virtual.record import CallRecord
from fleetsim.virtual.simulation import Simulation

ABANDONED = "abandoned"
THROTTLE_WINDOW_S = 120
NO_HEADERS: Mapping[str, str] = {}


class Owner(Protocol):
    """Who waits for a call besides its client: the task it is a part of."""

    task: int

    def ended(self, call: Call, ok: bool) -> None:
        """Told once, when the call is over; not told of calls it abandoned itself."""


class Call:
    """One call of an application with all its attempts, over when `record` has an end."""

    __slots__ = ("app_left", "attempt", "owner", "prefix", "record", "retries", "silent")

    def __init__(self, record: CallRecord, prefix: tuple[tuple[int, int], ...], app_left: int, owner: Owner | None):
        self.record = record
        self.prefix = prefix
        self.app_left = app_left  # retries of the application around the SDK
        self.owner = owner
        self.retries = 0  # of the SDK, within this try of the application
        self.attempt: Attempt | None = None  # the latest
        self.silent = False  # nothing came when the stream was last looked at


class Throttle:
    """Client-side throttling (SRE book, "Handling overload"): an attempt is rejected locally with probability
    max(0, (requests - K accepts) / (requests + 1)), both over two minutes and all calls.

    A rejected attempt counts as a request. For a stream the first token is the acceptance: its end may be minutes off.
    Nothing is rejected before two minutes are known: answers that take seconds make every start look like overload.
    """

    def __init__(self, k: float, rng: random.Random) -> None:
        self._k = k
        self._random = rng.random
        self._seconds: deque[list[int]] = deque()  # [second, requests, accepts]
        self._requests = self._accepts = 0
        self._known_from: float | None = None  # the first attempt

    def rejects(self, now: float) -> bool:
        """Whether the attempt about to be made is not; it counts as a request either way."""
        seconds = self._seconds
        if self._known_from is None:
            self._known_from = now
        while seconds and now - seconds[0][0] >= THROTTLE_WINDOW_S:
            _, requests, accepts = seconds.popleft()
            self._requests -= requests
            self._accepts -= accepts
        excess = (self._requests - self._k * self._accepts) / (self._requests + 1)
        self._second(now)[1] += 1
        self._requests += 1
        return excess > 0 and now - self._known_from >= THROTTLE_WINDOW_S and self._random() < excess

    def accepted(self, now: float) -> None:
        self._second(now)[2] += 1
        self._accepts += 1

    def _second(self, now: float) -> list[int]:
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append([int(now), 0, 0])
        return self._seconds[-1]


class Clients:
    """Makes calls through the gateway and keeps their records in the order of their beginning.

    A time-out is on silence, as in httpx: `timeout_s` without a stream's first token, or without a whole answer. A
    stream that has begun is looked at every `timeout_s`, and given up when its engine was hung at two looks in a row:
    after one to two time-outs of silence. Once an answer has begun the SDK retries no more. The application then may:
    it calls the SDK anew after a wait like the SDK's first, and to the gateway its attempts look like first ones.
    """

    def __init__(
        self,
        simulation: Simulation,
        gateway: Gateway,
        options: settings.Clients,
        seed: int,
        priorities: Mapping[str, int] = {},
    ) -> None:
        self.records: list[CallRecord] = []
        self._simulation = simulation
        self._gateway = gateway
        self._retries = options.retries
        self._app_retries = options.app_retries
        self._stream = options.stream
        self._priorities = priorities
        self._backoffs = random.Random(f"backoff-{seed}")
        k = options.throttle_k
        self._throttle = None if k is None else Throttle(k, random.Random(f"throttle-{seed}"))
        self._deadlines = Deadlines(simulation, options.timeout_s, self._due)

    def call(self, arrival: Arrival, owner: Owner | None = None) -> Call:
        """Begin a call of the arrival's lengths now."""
        record = CallRecord(
            self._simulation.now,
            arrival.tenant,
            self._priorities.get(arrival.tenant, 0),
            arrival.prompt_tokens,
            arrival.output_tokens,
        )
        if owner is not None:
            record.task = owner.task
        self.records.append(record)
        call = Call(record, arrival.prefix, self._app_retries, owner)
        self._attempt(call)
        return call

    def abandon(self, call: Call) -> None:
        """Give a call up because its task failed; one that is over is left as it is."""
        if call.record.ended_at is None:
            if call.attempt is not None:
                self._gateway.cancel(call.attempt)
            call.record.outcome = ABANDONED
            call.record.ended_at = self._simulation.now
            call.attempt = None

    # What the gateway tells.

    def first_token(self, attempt: Attempt) -> None:
        if self._throttle is not None and self._stream:
            self._throttle.accepted(self._simulation.now)

    def finished(self, attempt: Attempt) -> None:
        call, now = attempt.caller, self._simulation.now
        if self._throttle is not None and not self._stream:
            self._throttle.accepted(now)
        record = call.record
        first_at = now if attempt.first_at is None else attempt.first_at
        record.ttft_s = first_at - record.t
        if record.output_tokens > 1:
            record.tpot_s = (now - first_at) / (record.output_tokens - 1)
        self._end(call, Outcome.OK)

    def failed(self, attempt: Attempt, status: int, headers: Mapping[str, str]) -> None:
        call = attempt.caller
        if status == RESET:  # in the middle of an answer: before one, the gateway answers 503 for the endpoint
            self._give_up(call, Outcome.ERROR)
        elif should_retry(status, headers):
            self._retry(call, Outcome.REJECTED, headers)
        else:
            self._give_up(call, Outcome.REJECTED)

    # The way of a call.

    def _attempt(self, call: Call) -> None:
        record = call.record
        if record.ended_at is not None:
            return  # abandoned while it waited to try again
        if self._throttle is not None and self._throttle.rejects(self._simulation.now):
            self._give_up(call, Outcome.REJECTED)
            return
        record.attempts += 1
        attempt = call.attempt = Attempt(
            self,
            call,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            prefix=call.prefix,
            priority=record.priority,
            retry=call.retries,
        )
        call.silent = False
        self._gateway.send(attempt)
        self._deadlines.add(attempt)

    def _due(self, attempt: Attempt) -> None:
        """An attempt is still open so long after it was made, or after it was last looked at."""
        call, gateway = attempt.caller, self._gateway
        if self._stream and attempt.first_at is not None:
            silent = gateway.silent(attempt)
            if not (silent and call.silent):
                call.silent = silent
                self._deadlines.add(attempt)
                return
        started = gateway.started(attempt)
        gateway.cancel(attempt)
        if started:
            self._give_up(call, Outcome.TIMEOUT)
        else:
            self._retry(call, Outcome.TIMEOUT, NO_HEADERS)

    def _retry(self, call: Call, outcome: Outcome, headers: Mapping[str, str]) -> None:
        """What the SDK does when an attempt failed in a way that it retries."""
        if call.retries >= self._retries:
            self._give_up(call, outcome)
            return
        wait_s = delay_s(call.retries, headers, self._backoffs)
        call.retries += 1
        self._simulation.after(wait_s, self._attempt, call)

    def _give_up(self, call: Call, outcome: Outcome) -> None:
        """What the application does when the SDK failed."""
        if call.app_left == 0:
            self._end(call, outcome)
            return
        call.app_left -= 1
        call.retries = 0
        self._simulation.after(delay_s(0, NO_HEADERS, self._backoffs), self._attempt, call)

    def _end(self, call: Call, outcome: Outcome) -> None:
        call.record.outcome = outcome.value
        call.record.ended_at = self._simulation.now
        call.attempt = None  # it refers to the call: without the cycle both are gone at once, not at a collection
        if call.owner is not None:
            call.owner.ended(call, outcome is Outcome.OK)


def feed(simulation: Simulation, stream: Iterator[Arrival], take: Callable[[Arrival], object]) -> None:
    """Hand each arrival over at its time, one ahead; those of one moment keep their order."""
    arrival = next(stream, None)
    if arrival is not None:
        simulation.at(arrival.t, _hand_over, simulation, stream, take, arrival)


def _hand_over(
    simulation: Simulation, stream: Iterator[Arrival], take: Callable[[Arrival], object], arrival: Arrival
) -> None:
    take(arrival)
    feed(simulation, stream, take)
