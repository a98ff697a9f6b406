"""One client request as the OpenAI SDK makes it: attempts, time-outs, retries, and what came of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp

from fleetsim.sdk import RETRY_COUNT_HEADER, delay_s, should_retry

COMPLETIONS = "/v1/completions"
CONNECT_TIMEOUT_S = 5.0


class Outcome(StrEnum):
    OK = "ok"
    TIMEOUT = "timeout"  # the last attempt got no answer in time
    REJECTED = "rejected"  # the last attempt was answered with an error status
    ERROR = "error"  # the connection broke, or the stream ended in an error
    UNFINISHED = "unfinished"  # the run was over first


@dataclass(slots=True)
class Record:
    """One first attempt and what became of it: a line of clients.jsonl. Times are since the start."""

    t_start: float
    t_end: float
    outcome: Outcome
    attempts: int = 0
    ttft_s: float | None = None  # of the attempt that was answered
    tokens: int = 0
    statuses: list[int] = field(default_factory=list)  # one an attempt; 0 where no status came

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Attempt:
    outcome: Outcome
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    ttft_s: float | None = None
    started_streaming: bool = False


class Requester:
    """Makes requests over a shared session; `on_attempt` is called as each attempt starts."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        timeout_s: float,
        stream: bool,
        retries: int,
        rng: random.Random,
        clock: Callable[[], float],
        on_attempt: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._session = session
        self._url = url + COMPLETIONS
        # As in httpx, the time-out is on silence: the wait for the first byte, and each gap after it.
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s)
        self._stream = stream
        self._retries = retries
        self._rng = rng
        self._clock = clock
        self._on_attempt = on_attempt

    async def run(self, prompt_tokens: int, max_tokens: int) -> Record:
        """One request with all its retries. Cancelled, it returns what is known as UNFINISHED."""
        record = Record(self._clock(), 0.0, Outcome.UNFINISHED)
        body = {
            "prompt": "-",
            "prompt_tokens": prompt_tokens,
            "max_tokens": max_tokens,
            "stream": self._stream,
        }
        try:
            await self._attempts(record, body)
        except asyncio.CancelledError:
            record.outcome = Outcome.UNFINISHED
        record.t_end = self._clock()
        return record

    async def _attempts(self, record: Record, body: Mapping[str, Any]) -> None:
        for taken in range(self._retries + 1):
            self._on_attempt(taken)
            record.attempts += 1
            attempt = await self._attempt(body, taken)
            record.statuses.append(attempt.status)
            record.outcome = attempt.outcome
            if attempt.outcome is Outcome.OK:
                record.ttft_s, record.tokens = attempt.ttft_s, int(body["max_tokens"])
                return
            # Once the answer's headers were there, the SDK has handed the stream over and retries no more.
            if attempt.started_streaming or taken == self._retries:
                return
            if attempt.outcome is Outcome.REJECTED and not should_retry(attempt.status, attempt.headers):
                return
            await asyncio.sleep(delay_s(taken, attempt.headers, self._rng))

    async def _attempt(self, body: Mapping[str, Any], taken: int) -> _Attempt:
        start = self._clock()
        status, ttft_s = 0, None
        try:
            headers = {RETRY_COUNT_HEADER: str(taken)}
            async with self._session.post(self._url, json=body, headers=headers, timeout=self._timeout) as answer:
                status = answer.status
                if status != 200:
                    await answer.read()
                    return _Attempt(Outcome.REJECTED, status, answer.headers)
                tail = b""
                async for data in answer.content.iter_any():
                    ttft_s = self._clock() - start if ttft_s is None else ttft_s
                    tail = (tail + data)[-64:]
                complete = tail.endswith(b"data: [DONE]\n\n") if self._stream else tail.endswith(b"}")
                return _Attempt(Outcome.OK if complete else Outcome.ERROR, status, ttft_s=ttft_s)
        except TimeoutError:
            return _Attempt(Outcome.TIMEOUT, status, started_streaming=self._stream and status == 200)
        except (aiohttp.ClientError, ConnectionError):
            return _Attempt(Outcome.ERROR, status, started_streaming=self._stream and status == 200)
