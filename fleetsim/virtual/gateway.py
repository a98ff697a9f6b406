"""The gateway in virtual time: an Envoy in front of the engines as the embedded fleet configures it.

An attempt passes, in this order: the shed routes (retries first), the admission-control filter, the bounded queue if
there is one, the choice of an endpoint, the breaker. The panic threshold is 0: with no healthy endpoint it is 503.
"""

from __future__ import annotations

import random
from enum import Enum

from fleetsim import settings
from fleetsim.virtual.attempt import RESET, Attempt, Port
from fleetsim.virtual.balancing import Endpoint, Role
from fleetsim.virtual.deadlines import Deadlines
from fleetsim.virtual.envoy_stats import GatewayStats, Sent
from fleetsim.virtual.gateway_limits import AdmissionControl, Limits
from fleetsim.virtual.gateway_members import Members
from fleetsim.virtual.gateway_queue import PriorityQueue
from fleetsim.virtual.gateway_retries import Retries
from fleetsim.virtual.headers import Headers
from fleetsim.virtual.moves import MoveLog
from fleetsim.virtual.outlier import OutlierDetection
from fleetsim.virtual.simulation import Simulation

NO_HEADERS: dict[str, str] = {}
OVERLOADED = {"x-envoy-overloaded": "true"}


class Place(Enum):
    """Where an attempt is that is at no endpoint."""

    QUEUED = "queued"
    BACKING_OFF = "backing off"  # before a retry of the gateway's own


QUEUED, BACKING_OFF = Place.QUEUED, Place.BACKING_OFF


class Gateway:
    """Implements attempt.Upstream towards servers and controls.LimitTarget towards whoever operates it.

    `hop_s` each way is spent before an attempt arrives. A request counts as in flight from the choice of its endpoint
    to the end of the answer. A retry is a new choice, which may fall on the same endpoint: the embedded fleet's Envoy
    has no `previous_hosts` predicate.
    """

    def __init__(
        self,
        simulation: Simulation,
        options: settings.Gateway,
        seed: int,
        log: MoveLog,
        headers: Headers = Headers.FINISH,
    ) -> None:
        self._simulation = simulation
        self._settings = options
        self._headers = headers
        self._hops_s = 2 * options.hop_s
        self.stats = GatewayStats()
        self.active = 0
        self.members = Members(options.balancing, random.Random(f"gateway-choice-{seed}"), self._pump)
        self.limits = Limits(options.retry_budget_percent, random.Random(f"gateway-shed-{seed}"))
        self.retries = Retries(options, self.limits, random.Random(f"gateway-backoff-{seed}"))
        filtered, detection, queue = options.admission_control, options.outlier_detection, options.queue
        self.admission = AdmissionControl(filtered, random.Random(f"gateway-admission-{seed}")) if filtered else None
        self.outlier = (
            OutlierDetection(simulation, detection, self.members.endpoints.values(), self.members.renew, log)
            if detection
            else None
        )
        self._queue = PriorityQueue(queue.capacity) if queue else None
        self._room = queue.inflight_per_replica if queue else 0
        self._queue_timeouts = (
            Deadlines(simulation, queue.timeout_s, self._waited_too_long) if queue and queue.timeout_s else None
        )
        self._timeouts = Deadlines(simulation, options.timeout_s, self._took_too_long) if options.timeout_s else None

    # What the pool tells.

    def add(self, name: str, address: str, port: Port, role: Role = "serve") -> None:
        self.members.add(name, address, port, role)

    def remove(self, name: str) -> None:
        self.members.remove(name)

    def set_draining(self, name: str, draining: bool) -> None:
        self.members.set_draining(name, draining)

    # What an operator may see and do.

    @property
    def now(self) -> float:
        return self._simulation.now

    @property
    def pending(self) -> int:
        """Requests in the queue."""
        return 0 if self._queue is None else len(self._queue)

    @property
    def retries_full(self) -> bool:
        """Whether the gateway makes as many retries of its own at once as it may."""
        return self.retries.full(self.active + self.pending)

    def limit(self, lever: str) -> float | None:
        return self.limits.value(lever)

    def set_limit(self, lever: str, value: float | None) -> None:
        self.limits.set(lever, value)
        self._pump()

    def weight(self, name: str) -> float | None:
        return self.members.weight(name)

    def set_weight(self, name: str, weight: float) -> None:
        self.members.set_weight(name, weight)

    # What clients do.

    def send(self, attempt: Attempt) -> None:
        attempt.sent_at = self._simulation.now
        self._simulation.after(self._hops_s, self._arrive, attempt)

    def cancel(self, attempt: Attempt) -> None:
        """The client closed the connection; nothing is reported to it any more."""
        if not attempt.open:
            return
        attempt.open = False
        if attempt.endpoint is None:
            return  # it left before its request arrived
        self.stats.client_left += 1
        self._leave(attempt)
        self._settle(attempt, False)
        self._pump()

    def started(self, attempt: Attempt) -> bool:
        """Whether the head of an answer has reached the client."""
        if self._headers is Headers.AT_ONCE:
            return attempt.endpoint.__class__ is Endpoint
        return self._headers is Headers.FIRST_TOKEN and attempt.first_at is not None

    def silent(self, attempt: Attempt) -> bool:
        """Whether the attempt is at an endpoint that is hung: nothing more comes until that changes."""
        endpoint = attempt.endpoint
        return endpoint.__class__ is Endpoint and endpoint.port.hung

    # What servers answer.

    def first_token(self, attempt: Attempt) -> None:
        if attempt.first_at is None:
            attempt.first_at = self._simulation.now
            attempt.client.first_token(attempt)

    def finished(self, attempt: Attempt) -> None:
        endpoint = attempt.endpoint
        endpoint.active -= 1
        self.active -= 1
        endpoint.rq_success += 1
        if self.outlier is not None:
            self.outlier.succeeded(endpoint)
        if self.members.disaggregated and attempt.stage == 0:
            attempt.stage = 1
            self._dispatch(attempt)
        else:
            sent = self._sent(attempt)
            sent.codes[200] = sent.codes.get(200, 0) + 1
            sent.times.observe((self._simulation.now - attempt.sent_at - self._hops_s) * 1000)
            self.stats.answered_2xx += 1
            if attempt.tries > 1:
                sent.retry_success += 1
            self._settle(attempt, True)
            attempt.open = False
            attempt.client.finished(attempt)
        if self._queue is not None:
            self._pump()

    def failed(self, attempt: Attempt, status: int) -> None:
        endpoint = attempt.endpoint
        endpoint.active -= 1
        self.active -= 1
        if 0 < status < 500:  # the request's own fault: the endpoint is well
            endpoint.rq_success += 1
            if self.outlier is not None:
                self.outlier.succeeded(endpoint)
            self._answer(attempt, status, NO_HEADERS)
        else:
            endpoint.rq_error += 1
            self.stats.upstream_resets += status == RESET
            if self.outlier is not None:
                self.outlier.failed(endpoint)
            if status == RESET and self.started(attempt):
                self._break_off(attempt)
            elif self._settings.retry_on == "connect_failure" or not self._retry(attempt):
                self._answer(attempt, status or 503, NO_HEADERS)
        self._pump()

    # The way of an attempt.

    def _sent(self, attempt: Attempt) -> Sent:
        return self.stats.retry if attempt.retry else self.stats.first

    def _arrive(self, attempt: Attempt) -> None:
        if not attempt.open:
            return
        self._sent(attempt).arrived += 1
        refusal = self.limits.refusal(attempt.retry > 0)
        if refusal is not None:
            self.stats.direct_responses += 1
            self._refuse(attempt, 429, refusal)
        elif self.admission is not None and self.admission.rejects(self._simulation.now):
            self._refuse(attempt, 503, NO_HEADERS)
        else:
            attempt.tries = 1
            if self._timeouts is not None:
                self._timeouts.add(attempt)
            if self._queue is None or self.active >= self.limits.breaker:
                self._dispatch(attempt)
            else:
                self._dispatch_or_wait(attempt, self._queue)

    def _dispatch_or_wait(self, attempt: Attempt, queue: PriorityQueue) -> None:
        endpoint = None if queue else self.members.pick_below(attempt, self._room)
        if endpoint is not None:
            self._offer(attempt, endpoint)
            return
        attempt.endpoint = QUEUED
        turned_away = queue.add(attempt)
        if turned_away is not None:
            self.stats.pending_overflow += 1
            self._answer(turned_away, 503, OVERLOADED)
        if turned_away is not attempt and self._queue_timeouts is not None:
            self._queue_timeouts.add(attempt)

    def _pump(self) -> None:
        """Send on from the queue while there is room at an endpoint and under the breaker."""
        queue = self._queue
        while queue and self.active < self.limits.breaker and (attempt := queue.head()) is not None:
            endpoint = self.members.pick_below(attempt, self._room)
            if endpoint is None:
                return
            queue.take()
            self._offer(attempt, endpoint)

    def _dispatch(self, attempt: Attempt) -> None:
        endpoint = self.members.pick(attempt)
        if endpoint is None:
            self.stats.none_healthy += 1
            self._answer(attempt, 503, NO_HEADERS)
        elif self.active >= self.limits.breaker:
            endpoint.rq_error += 1  # Envoy chooses first and counts the refusal as the endpoint's error
            self.stats.active_overflow += 1
            self._answer(attempt, 503, OVERLOADED)
        else:
            self._offer(attempt, endpoint)

    def _offer(self, attempt: Attempt, endpoint: Endpoint) -> None:
        attempt.version += 1
        attempt.endpoint = endpoint
        if endpoint.port.listening:
            endpoint.active += 1
            endpoint.rq_total += 1
            self.active += 1
            self._sent(attempt).total += 1
            endpoint.port.offer(attempt)
            return
        endpoint.connect_failures += 1
        endpoint.rq_error += 1
        self.stats.connect_failures += 1
        if self.outlier is not None:
            self.outlier.failed(endpoint)
        if not self._retry(attempt):
            self._answer(attempt, 503, NO_HEADERS)

    def _retry(self, attempt: Attempt) -> bool:
        """Have it tried again after a back-off, if it may be."""
        backoff_s = self.retries.grant_s(attempt.tries, self.active + self.pending, self._sent(attempt))
        if backoff_s is None:
            return False
        attempt.tries += 1
        attempt.first_at = None
        attempt.endpoint = BACKING_OFF
        self._simulation.after(backoff_s, self._again, attempt)
        return True

    def _again(self, attempt: Attempt) -> None:
        if attempt.open:
            self._dispatch(attempt)

    def _waited_too_long(self, attempt: Attempt) -> None:
        if attempt.endpoint is QUEUED:
            self._leave(attempt)
            self.stats.pending_timeouts += 1
            self._answer(attempt, 503, NO_HEADERS)

    def _took_too_long(self, attempt: Attempt) -> None:
        endpoint, started = attempt.endpoint, self.started(attempt)
        self._leave(attempt)
        self._sent(attempt).timeouts += 1
        if endpoint.__class__ is Endpoint:
            endpoint.rq_timeout += 1
            if self.outlier is not None:
                self.outlier.failed(endpoint)
        if started:
            self._break_off(attempt)
        else:
            self._answer(attempt, 504, NO_HEADERS)
        self._pump()

    # The end of an attempt.

    def _leave(self, attempt: Attempt) -> None:
        """Take it from where it is."""
        place = attempt.endpoint
        if place.__class__ is Endpoint:
            place.active -= 1
            self.active -= 1
            place.port.cancel(attempt)
        elif place is QUEUED and self._queue is not None:
            self._queue.discard()

    def _settle(self, attempt: Attempt, success: bool) -> None:
        if attempt.tries > 1:
            self.retries.active -= 1
        if self.admission is not None:
            self.admission.record(self._simulation.now, success)

    def _answer(self, attempt: Attempt, status: int, headers: dict[str, str]) -> None:
        """Answer what was let in with an error."""
        sent = self._sent(attempt)
        sent.codes[status] = sent.codes.get(status, 0) + 1
        self._settle(attempt, False)
        self._refuse(attempt, status, headers)

    def _refuse(self, attempt: Attempt, status: int, headers: dict[str, str]) -> None:
        if status < 500:
            self.stats.answered_4xx += 1
        else:
            self.stats.answered_5xx += 1
        self.stats.other_times.observe((self._simulation.now - attempt.sent_at - self._hops_s) * 1000)
        attempt.open = False
        attempt.client.failed(attempt, status, headers)

    def _break_off(self, attempt: Attempt) -> None:
        """The client has the head of an answer and will not get the rest."""
        self.stats.with_reset += 1
        self._settle(attempt, False)
        attempt.open = False
        attempt.client.failed(attempt, RESET, NO_HEADERS)
