"""When the OpenAI SDK retries, and how long it waits: the policy of its Python client, as pure functions."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

INITIAL_DELAY_S = 0.5
MAX_DELAY_S = 8.0
MAX_RETRY_AFTER_S = 120.0
JITTER = 0.25
RETRY_COUNT_HEADER = "x-stainless-retry-count"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; None when it does not say, or not in seconds."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / divisor
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return seconds
    return None


def should_retry(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer with this status is retried. The server's `x-should-retry` has the last word but one:
    a Retry-After beyond two minutes ends it."""
    asked = retry_after_s(headers)
    if asked is not None and asked > MAX_RETRY_AFTER_S:
        return False
    word = headers.get("x-should-retry")
    if word in ("true", "false"):
        return word == "true"
    return status in (408, 409, 429) or status >= 500


def delay_s(retries_taken: int, headers: Mapping[str, str], rng: random.Random) -> float:
    """Seconds before the next attempt, after `retries_taken` retries so far."""
    asked = retry_after_s(headers)
    if asked is not None and 0 < asked <= MAX_RETRY_AFTER_S:
        return asked
    return float(min(INITIAL_DELAY_S * 2.0**retries_taken, MAX_DELAY_S)) * (1 - JITTER * rng.random())


def patience_s(timeout_s: float, retries: int) -> float:
    """The longest a client waits for a first byte over all its attempts, without a Retry-After."""
    backoffs = sum(min(INITIAL_DELAY_S * 2.0**k, MAX_DELAY_S) for k in range(retries))
    return (retries + 1) * timeout_s + backoffs
