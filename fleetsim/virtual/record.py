"""What became of a call and of a task: what the score is computed from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CallRecord:
    """One call of a client, with all its attempts. Times in virtual seconds since the start; None: it did not happen.

    outcome: ok, timeout, rejected, error, abandoned (its task failed elsewhere), unfinished (the run ended first).
    `ttft_s` counts from the first attempt, whatever attempt was answered; `tpot_s` is of the answered attempt.
    """

    t: float
    tenant: str
    priority: int
    prompt_tokens: int
    output_tokens: int
    outcome: str = "unfinished"
    attempts: int = 0
    ended_at: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    task: int | None = None


@dataclass(slots=True)
class TaskRecord:
    """A workflow of an agent: it succeeded if every call of every step did."""

    t: float
    task: int
    calls: int = 0
    succeeded: bool | None = None  # None: not over yet
    ended_at: float | None = None
