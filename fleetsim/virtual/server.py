"""One engine's server in virtual time: what the gateway sends to, around an engine that skips its steps.

It answers only from events of its own, never from within `offer` or `cancel`. An answer's delays outside the
engine: `ingress_s` before its queue, and `token_s` a token at the end. BLIS measures a streamed token at
0.05 ms on top of its step, and an answer grows by that for each of its tokens; here the first token comes
undelayed (its share vanishes in a step) and the end comes `tokens * token_s` late: one event instead of one
a token.

In a disaggregated pool a prefill server answers `finished` after one token and no first token: clients see
that one only from the decode server, which gets the KV cache of the whole prompt over the network first.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Literal

from fleetsim.engine import Sequence
from fleetsim.request import COMPLETIONS
from fleetsim.settings import Serving
from fleetsim.timing import KV_READ_EFFICIENCY, Degradation, Profile
from fleetsim.virtual.attempt import RESET, Attempt, Upstream
from fleetsim.virtual.simulation import Simulation

if TYPE_CHECKING:
    from fleetsim.virtual.engine import SkippingEngine
    from fleetsim.virtual.exporters import ReadableMetrics

Role = Literal["serve", "prefill", "decode"]
NETWORK_BYTES_PER_S_PER_GPU = 50e9  # a 400 Gb/s NIC a GPU, as in an H100 machine, at line rate
TOO_BUSY, TOO_LONG = 503, 400


def kv_bytes_per_token(profile: Profile) -> float:
    """Bytes of KV cache a token has on all GPUs: c_kv is the time to read a GPU's share at 80 % of its HBM."""
    return profile.kv_s * KV_READ_EFFICIENCY * profile.gpu.hbm_tb_per_s * 1e12 * profile.gpus_per_replica


def transfer_s_per_token(profile: Profile) -> float:
    """Seconds to send a prompt token's KV cache to another replica, each GPU its share over its own NIC."""
    return kv_bytes_per_token(profile) / (profile.gpus_per_replica * NETWORK_BYTES_PER_S_PER_GPU)


class Server:
    """An address and, while `listening`, the engine process behind it. Implements `attempt.Port`.

    A crash or a stop ends the process and its engine; `boot` starts another one at the same address.
    """

    __slots__ = (
        "_abort", "_armed", "_ids", "_ingress_s", "_max_waiting", "_open", "_simulation",
        "_token_s", "_transfer_s", "_upstream", "engine", "hung", "listening", "metrics", "role",
    )  # fmt: skip

    def __init__(
        self, simulation: Simulation, upstream: Upstream, serving: Serving, profile: Profile, role: Role = "serve"
    ) -> None:
        self.listening = False
        self.hung = False
        self.role = role
        self.engine: SkippingEngine | None = None
        self.metrics: ReadableMetrics | None = None
        self._simulation = simulation
        self._upstream = upstream
        self._abort = serving.abort_on_disconnect
        self._max_waiting = math.inf if serving.max_waiting is None else serving.max_waiting
        self._ingress_s = serving.ingress_s
        self._token_s = serving.token_s
        self._transfer_s = transfer_s_per_token(profile) if role == "decode" else 0.0
        self._open: dict[Attempt, Sequence] = {}  # offered and not answered
        self._armed = math.inf  # when the next wake-up that counts is due
        self._ids = count(1)

    def boot(self, engine: SkippingEngine, metrics: ReadableMetrics) -> None:
        """Begin to listen, with a new engine process."""
        self.engine, self.metrics = engine, metrics
        self.listening, self.hung = True, False
        self._armed = math.inf

    @property
    def in_flight(self) -> int:
        """Requests that the server or its engine still has, those included whose clients have left."""
        return 0 if self.engine is None else max(len(self._open), self.engine.waiting_count + self.engine.running_count)

    def offer(self, attempt: Attempt) -> None:
        simulation = self._simulation
        now = simulation.now
        prompt, output, delay = attempt.prompt_tokens, attempt.output_tokens, self._ingress_s
        if self.role == "serve":
            sequence = Sequence(next(self._ids), prompt, output, now, prefix=attempt.prefix, payload=attempt)
        elif self.role == "prefill":
            sequence = Sequence(next(self._ids), prompt, 1, now, prefix=attempt.prefix, payload=attempt)
        else:
            sequence = Sequence(next(self._ids), prompt, output, now, received=prompt, generated=1, payload=attempt)
            delay += prompt * self._transfer_s
        self._open[attempt] = sequence
        attempt.sequence = None
        if delay:
            simulation.after(delay, self._queue, attempt, sequence)
        else:
            self._queue(attempt, sequence)

    def cancel(self, attempt: Attempt) -> None:
        sequence = self._open.pop(attempt, None)
        if sequence is None or attempt.sequence is not sequence:
            return  # answered already, or not in the engine yet
        attempt.sequence = None
        if self._abort:
            self.advance().abort(sequence, self._simulation.now)
            self._arm()

    def advance(self) -> SkippingEngine:
        """The engine, as it is now. Only while listening."""
        engine = self.engine
        assert engine is not None
        ended = engine.advance(self._simulation.now)
        if ended:
            self._simulation.after(0.0, self._deliver, ended)
        return engine

    def degrade(self, degradation: Degradation) -> None:
        """Applies from the next step on."""
        self.advance().degrade(degradation, self._simulation.now)
        self._arm()

    def hang(self, hung: bool) -> None:
        """Freeze the engine, or let it go on. Its front end still takes requests and answers scrapes."""
        self.hung = hung
        self.advance().hang(hung, self._simulation.now)
        self._arm()

    def flush(self) -> None:
        """Empty the prefix cache, but for what running requests use (vLLM does not take that from them either)."""
        self.advance().flush()

    def end(self) -> None:
        """The process is gone: connections to it break, and new ones are refused."""
        if not self.listening:
            return
        self.listening = self.hung = False
        self.engine = self.metrics = None
        self._armed = math.inf
        broken, self._open = self._open, {}
        for attempt in broken:
            attempt.sequence = None
            self._upstream.failed(attempt, RESET)

    def _queue(self, attempt: Attempt, sequence: Sequence) -> None:
        """A request reaches the engine's queue, unless its client or the process has gone meanwhile."""
        if self._open.get(attempt) is not sequence:
            return
        now = self._simulation.now
        engine = self.engine
        assert engine is not None and self.metrics is not None  # a process that ended has nothing open
        ended = engine.advance(now)
        if ended:
            self._simulation.after(0.0, self._deliver, ended)
        if engine.waiting_count >= self._max_waiting:
            self._refuse(attempt, sequence, TOO_BUSY)
            return
        if self.role == "decode" and sequence.max_tokens <= 1:
            # The prefill made the only token there is.
            self._simulation.after(0.0, self._deliver, [(now, sequence, False), (now, sequence, True)])
            return
        try:
            engine.submit(sequence, now)
        except ValueError:
            self._refuse(attempt, sequence, TOO_LONG)
            return
        attempt.sequence = sequence
        self.metrics.observe_http(COMPLETIONS, 200)
        if engine.next_event != self._armed:
            self._arm()

    def _refuse(self, attempt: Attempt, sequence: Sequence, status: int) -> None:
        assert self.metrics is not None
        self.metrics.observe_http(COMPLETIONS, status)
        self._simulation.after(0.0, self._failed, attempt, sequence, status)

    def _failed(self, attempt: Attempt, sequence: Sequence, status: int) -> None:
        if self._open.get(attempt) is sequence:
            del self._open[attempt]
            self._upstream.failed(attempt, status)

    def _arm(self) -> None:
        """Have the engine looked at when it next has something to tell; earlier appointments lapse."""
        assert self.engine is not None
        at = self._armed = self.engine.next_event
        if at < math.inf:
            self._simulation.at(at, self._wake, at)

    def _wake(self, at: float) -> None:
        if at != self._armed:
            return
        engine = self.engine
        assert engine is not None
        self._armed = math.inf
        self._deliver(engine.advance(self._simulation.now))
        # Answers may have brought new requests, which have made an appointment already.
        if self.engine is engine and engine.next_event != self._armed:
            self._arm()

    def _deliver(self, ended: list[tuple[float, Sequence, bool]]) -> None:
        """Tell the gateway; what an engine did for clients that have left interests nobody."""
        for _, sequence, finished in ended:
            attempt = sequence.payload
            assert isinstance(attempt, Attempt)
            if self._open.get(attempt) is not sequence:
                continue
            if not finished:
                if self.role != "prefill":
                    self._upstream.first_token(attempt)
            elif self._token_s:
                self._simulation.after(self._token_s * sequence.max_tokens, self._finished, attempt, sequence)
            else:
                self._finished(attempt, sequence)

    def _finished(self, attempt: Attempt, sequence: Sequence) -> None:
        if self._open.get(attempt) is sequence:
            del self._open[attempt]
            attempt.sequence = None
            self._upstream.finished(attempt)
