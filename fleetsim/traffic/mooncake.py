"""Mooncake traces (kvcache-ai/Mooncake, FAST'25, Apache-2.0): one JSON object a line.

timestamp: ms from the start; input_length, output_length: tokens; hash_ids: one id for each block of 512 prompt
tokens, the last one partial. An id stands for the block and all before it, so equal ids are reusable KV.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetsim.traffic.arrival import Arrival, Stream
from fleetsim.traffic.rows import MOST_TOKENS, TraceError, in_order, numbered, quoted

BLOCK = 512
LATEST_MS = 1e13  # 300 years
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
CORRECT = "correct or remove the line"


def recognises(first: str) -> bool:
    return first.startswith("{")


def read(path: Path) -> Stream:
    """Arrivals; a block id becomes a chunk of its tokens. Zero lengths are errors (the published files have none)."""
    before = 0.0
    for line, text in numbered(path):
        row = _object(text, path, line)
        stamp = row["timestamp"]
        if type(stamp) not in (int, float) or not 0 <= stamp <= LATEST_MS:  # NaN and infinity are not either
            raise TraceError(
                path, line, "timestamp", f"milliseconds from 0 to {LATEST_MS:g}", quoted(str(stamp)), CORRECT
            )
        in_order(stamp, before, path, line, "timestamp")
        before = stamp
        prompt = _tokens(row, "input_length", path, line)
        output = _tokens(row, "output_length", path, line)
        yield Arrival(stamp / 1000, prompt, output, _chunks(row["hash_ids"], prompt, path, line))


def _object(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of absurd length and nesting of absurd depth included
        place, reason = (error.colno, error.msg) if isinstance(error, json.JSONDecodeError) else (1, str(error))
        found = f"{reason} in {quoted(text[-60:])}"
        raise TraceError(path, line, str(place), "a JSON object", found, "complete or remove the line") from error
    if not isinstance(row, dict):
        raise TraceError(path, line, "1", "a JSON object", quoted(text), CORRECT)
    for key in KEYS:
        if key not in row:
            raise TraceError(path, line, key, f"the keys {', '.join(KEYS)}", f"only {quoted(', '.join(row))}", CORRECT)
    return row


def _tokens(row: dict[str, Any], key: str, path: Path, line: int) -> int:
    value = row[key]
    if type(value) is int and 0 < value <= MOST_TOKENS:
        return value
    raise TraceError(path, line, key, "a whole number of tokens, 1 or more", quoted(str(value)), CORRECT)


def _chunks(ids: Any, prompt: int, path: Path, line: int) -> tuple[tuple[int, int], ...]:
    blocks = -(-prompt // BLOCK)
    if type(ids) is not list or len(ids) != blocks:
        found = f"{len(ids)} of them" if type(ids) is list else quoted(str(ids))
        raise TraceError(path, line, "hash_ids", f"{blocks} ids, one for each {BLOCK} tokens", found, CORRECT)
    for key in ids:
        if type(key) is not int:
            raise TraceError(path, line, "hash_ids", "whole numbers", quoted(str(key)), CORRECT)
    return (*[(key, BLOCK) for key in ids[:-1]], (ids[-1], prompt - BLOCK * (blocks - 1)))
