"""The project's own trace format, the simplest that carries everything an arrival has.

A header and one row a request, commas, no quoting: `t_s,prompt_tokens,output_tokens`, then optionally `tenant`, then
optionally `prefix_id,prefix_tokens`: the first prefix_tokens tokens of all prompts with this id are the same.
"""

from __future__ import annotations

from pathlib import Path

from fleetsim.traffic.arrival import Arrival, Stream
from fleetsim.traffic.rows import TraceError, in_order, quoted, seconds, table, tokens

REQUIRED = ("t_s", "prompt_tokens", "output_tokens")
PREFIX = ("prefix_id", "prefix_tokens")
HEADERS = (REQUIRED, (*REQUIRED, "tenant"), (*REQUIRED, *PREFIX), (*REQUIRED, "tenant", *PREFIX))


def recognises(first: str) -> bool:
    return first.startswith("t_s")


def read(path: Path) -> Stream:
    """Arrivals at the times of the file (they need not begin at 0). An empty prefix_id means nothing is shared."""
    rows = table(path, *HEADERS)
    _, columns = next(rows)
    has_tenant, has_prefix = "tenant" in columns, "prefix_id" in columns
    before = 0.0
    for line, fields in rows:
        t = seconds(fields[0], path, line, "1 (t_s)")
        in_order(t, before, path, line, "1 (t_s)")
        before = t
        prompt = tokens(fields[1], path, line, "2 (prompt_tokens)")
        output = tokens(fields[2], path, line, "3 (output_tokens)")
        tenant = _tenant(fields[3], path, line) if has_tenant else ""
        prefix = _prefix(fields, prompt, path, line) if has_prefix else ()
        yield Arrival(t, prompt, output, prefix, tenant)


def _tenant(name: str, path: Path, line: int) -> str:
    if name.isprintable():
        return name
    raise TraceError(path, line, "4 (tenant)", "printable UTF-8", quoted(name), "rename the tenant")


def _prefix(fields: list[str], prompt: int, path: Path, line: int) -> tuple[tuple[int, int], ...]:
    identity, shared = fields[-2:]
    at = len(fields) - 1
    if not identity and not shared:
        return ()
    if not (identity.isdigit() and identity.isascii() and len(identity) <= 20):
        found = quoted(identity)
        raise TraceError(path, line, f"{at} (prefix_id)", "a whole number or nothing", found, "number the prefixes")
    place = f"{at + 1} (prefix_tokens)"
    length = tokens(shared, path, line, place)
    if length > prompt:
        raise TraceError(path, line, place, f"at most the prompt's {prompt} tokens", shared, "correct the row")
    return ((int(identity), length),)
