"""What each endpoint can finish: throughput, capacity mu, batch limit, queue wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.build import Memory, endpoint_scope, window
from analyzers.fleet import BoolArray, IntArray, known_sum, pool_rows, take
from analyzers.model import Context
from collector.history import History
from collector.model import FloatArray, Frame, Histogram, Level

SMOOTHING_PER_S = 0.3
THROUGHPUT_WINDOW_S = 6.0
FLOOR_WINDOW_S = 30.0
LENGTH_WINDOW_S = 120.0
LENGTH_ENDPOINTS = 16
SUCCESS_REASONS = ("stop", "length", "repetition")


@dataclass(frozen=True)
class Capacity:
    """Arrays of shape (endpoints of the pool,), NaN where unknown; rates in requests/s, waits in seconds.

    throughput: requests finished now, counted as work done (tokens over mean answer length) where the engine
    tells, so that work thrown away half-way counts for what it used. mu: the same learnt while requests wait.
    sustained: the fewest requests waiting over three samples. progressing: tokens flow, or it is unknown.
    """

    pool: str
    names: tuple[str, ...]
    rows: IntArray
    running: FloatArray
    waiting: FloatArray
    sustained: FloatArray
    throughput: FloatArray
    mu: FloatArray
    batch_limit: FloatArray
    progressing: BoolArray
    output_tokens: float | None
    method: str

    @property
    def wait_s(self) -> FloatArray:
        return queue_wait(self.waiting, self.mu, self.throughput)

    @property
    def sustained_wait_s(self) -> FloatArray:
        return queue_wait(self.sustained, self.mu, self.throughput)

    @property
    def pool_mu(self) -> float | None:
        """Capacity of the endpoints that are known to run; None until most of them were seen at their limit.

        Endpoints never seen at theirs are taken to be like the mean of those that were. One that is warming up,
        or whose data have gone stale, adds nothing.
        """
        each = self.endpoint_mu
        return None if each is None else each * int(np.count_nonzero(self.answering))

    @property
    def endpoint_mu(self) -> float | None:
        """Mean capacity of an endpoint, over those that were seen at their limit."""
        learnt = self.mu[np.isfinite(self.mu) & self.answering]
        if learnt.size == 0 or learnt.size < 0.5 * np.count_nonzero(self.answering):
            return None
        return float(learnt.mean())

    @property
    def answering(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Endpoints whose load is known now."""
        return np.isfinite(self.running) | np.isfinite(self.waiting)

    @property
    def service_time_s(self) -> float | None:
        """Mean time in the batch, by Little's law: requests running over requests finished per second."""
        running, rate = known_sum(self.running), known_sum(self.throughput)
        return running / rate if running is not None and rate is not None and rate > 0 else None


def queue_wait(waiting: FloatArray, mu: FloatArray, throughput: FloatArray) -> FloatArray:
    """W = waiting / mu per endpoint. Without a learnt mu the present throughput serves while requests wait.

    One request in the throughput window is the least rate that can be told from none, hence the floor.
    """
    rate = np.where(np.isfinite(mu), mu, throughput)
    rate = np.where(np.isfinite(rate), np.maximum(rate, 1 / THROUGHPUT_WINDOW_S), np.nan)
    return np.where(waiting == 0, 0.0, waiting / rate)


def measure_capacity(history: History, frame: Frame, context: Context, pool: str, memory: Memory) -> Capacity:
    rows = pool_rows(frame, pool)
    names = tuple(frame.endpoints.rows[row] for row in rows)
    running = frame.endpoints.column("requests_running")[rows]
    waiting = frame.endpoints.column("requests_waiting")[rows]
    recent = window(context, 0.0, samples=2)
    sustained = take(history.minimum(Level.ENDPOINT, "requests_waiting", recent), rows)
    if not lasting(history, context):
        sustained = np.full(rows.size, np.nan)
    short = window(context, THROUGHPUT_WINDOW_S)
    long = window(context, FLOOR_WINDOW_S)
    length = _output_tokens(history, names, window(context, LENGTH_WINDOW_S))
    tokens = take(history.rate(Level.ENDPOINT, "generation_tokens", short), rows)
    throughput, method = _throughput(history, rows, short, tokens, length)
    steady, _ = _throughput(
        history, rows, long, take(history.rate(Level.ENDPOINT, "generation_tokens", long), rows), length
    )
    before = np.array([_or_nan(memory.get("capacity_mu", endpoint_scope(name))) for name in names])
    batch_limit = _batch_limit(context, pool, names, running, waiting, memory=memory)
    # A throughput is the capacity if there was a queue all the while. Where prompts wait a step or two for their turn
    # to be read there is one now and then in a batch that is half empty: there must be work to fill it.
    queued = take(history.minimum(Level.ENDPOINT, "requests_waiting", short), rows)
    filled = ~(running + waiting < batch_limit)
    progressing = ~((running > 0) & ((tokens == 0) | standing_still(history, frame, context)[rows]))
    mu = _learn(
        before,
        throughput,
        steady,
        at_limit=(waiting > 0) & (queued > 0) & (sustained > 0) & filled & progressing,
        interval_s=context.interval_s,
    )
    return Capacity(
        pool=pool,
        names=names,
        rows=rows,
        running=running,
        waiting=waiting,
        sustained=sustained,
        throughput=throughput,
        mu=mu,
        batch_limit=batch_limit,
        progressing=progressing,
        output_tokens=length,
        method=method,
    )


def standing_still(history: History, frame: Frame, context: Context) -> BoolArray:
    """(R,) endpoints that were read just now and whose token counter has not moved since the sample before.

    Too little to call an engine hung, enough not to act on what its gauges say in this cycle.
    """
    span = 1.5 * context.interval_s
    most = history.maximum(Level.ENDPOINT, "generation_tokens", span).value
    least = history.minimum(Level.ENDPOINT, "generation_tokens", span).value
    table = frame.endpoints
    if "generation_tokens" not in table.columns or history.span_s() < 0.9 * context.interval_s:
        return np.zeros(len(table.rows), dtype=np.bool_)
    fresh = table.age_s[:, table.columns.index("generation_tokens")] < 0.5 * context.interval_s
    return np.asarray(fresh & (most == least), dtype=np.bool_)


def lasting(history: History, context: Context) -> bool:
    """Whether history holds three samples: below that, nothing held "three samples running"."""
    return history.span_s() >= 1.9 * context.interval_s


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _output_tokens(history: History, names: tuple[str, ...], window_s: float) -> float | None:
    """Mean tokens of a finished answer. A sample of endpoints is enough for a mean and bounds the cost."""
    step = max(1, len(names) // LENGTH_ENDPOINTS)
    total = count = 0.0
    for name in names[::step]:
        delta: Histogram | None = history.delta(Level.ENDPOINT, name, "request_generation_tokens", window_s)
        if delta is not None and delta.count > 0:
            total, count = total + delta.sum, count + delta.count
    return total / count if count > 0 and total > 0 else None


def finished_rate(
    history: History, rows: IntArray, window_s: float, reasons: tuple[str, ...] = SUCCESS_REASONS
) -> FloatArray:
    """Requests/s per endpoint that ended for one of `reasons`; NaN where no reason is known."""
    parts = np.stack(
        [
            take(history.rate(Level.ENDPOINT, f"requests_by_finish_reason.{reason}", window_s), rows)
            for reason in reasons
        ]
    )
    return np.where(np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan)


def _throughput(
    history: History, rows: IntArray, window_s: float, tokens: FloatArray, length: float | None
) -> tuple[FloatArray, str]:
    if length is not None and np.isfinite(tokens).any():
        return tokens / length, "tokens generated over the mean answer length"
    finished = finished_rate(history, rows, window_s)
    if np.isfinite(finished).any():
        return finished, "requests finished"
    sent = take(history.rate(Level.ENDPOINT, "gateway_attempts", window_s), rows)
    growth = take(history.slope(Level.ENDPOINT, "requests_waiting", window_s), rows)
    batch = take(history.slope(Level.ENDPOINT, "requests_running", window_s), rows)
    left = sent - growth - np.where(np.isfinite(batch), batch, 0.0)
    return np.maximum(left, 0.0), "requests the gateway sent less the growth of the queue"


def _learn(
    before: FloatArray,
    throughput: FloatArray,
    steady: FloatArray,
    at_limit: BoolArray,
    interval_s: float,
) -> FloatArray:
    """Capacity: follows the throughput while at the limit; else kept, or raised by what was done."""
    weight = 1 - (1 - SMOOTHING_PER_S) ** interval_s
    followed = np.where(np.isfinite(before), before + weight * (throughput - before), throughput)
    kept = np.where(np.isfinite(before) & np.isfinite(steady), np.fmax(before, steady), before)
    return np.where(at_limit & np.isfinite(throughput), followed, kept)


def _batch_limit(
    context: Context,
    pool: str,
    names: tuple[str, ...],
    running: FloatArray,
    waiting: FloatArray,
    *,
    memory: Memory,
) -> FloatArray:
    configured = context.settings(pool).max_num_seqs
    if configured is not None:
        return np.full(len(names), float(configured))
    before = np.array([_or_nan(memory.get("batch_limit", endpoint_scope(name))) for name in names])
    return np.where((waiting > 0) & (running > 0), np.fmax(before, running), before)
