"""What every source of traffic yields and every simulated fleet takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Arrival(NamedTuple):
    """One first attempt of one request (a tuple, because half a million of them pass in a minute).

    `prefix` is the prompt's reusable KV from its first token on: chunks of (key, tokens). Two prompts share
    the KV of as many leading chunks as have equal keys. It may cover less than the prompt.
    """

    t: float  # seconds from the start of the traffic
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[tuple[int, int], ...] = ()
    tenant: str = ""


Stream = Iterator[Arrival]  # in order of t, read once
