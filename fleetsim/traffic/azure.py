"""Azure LLM inference traces, 2023 (AzurePublicDataset, CC-BY 4.0, Splitwise at ISCA'24): one row a request."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from fleetsim.traffic.arrival import Arrival, Stream
from fleetsim.traffic.rows import TraceError, quoted, table, tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TICKS = 10**7  # the files give 100 ns
TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,7}))?", re.ASCII)


def recognises(first: str) -> bool:
    return first.startswith("TIMESTAMP")


def read(path: Path) -> Stream:
    """Arrivals, t in seconds from the first row. No row of the published files has a zero length or goes back in
    time, and the format documents neither: both are errors.
    """
    start: int | None = None
    before = 0
    second, second_ticks = "", 0  # many rows share a second; parsing it once is most of the speed
    rows = table(path, COLUMNS)
    next(rows)
    for line, (stamp, prompt, output) in rows:
        match = TIMESTAMP.fullmatch(stamp)
        if match is None:
            raise _bad_time(path, line, stamp)
        if match[1] != second:
            try:
                parsed = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
            except ValueError as error:
                raise _bad_time(path, line, stamp) from error
            second, second_ticks = match[1], int(parsed.timestamp()) * TICKS
        now = second_ticks + (int(match[2].ljust(7, "0")) if match[2] else 0)
        if start is None:
            start = before = now
        if now < before:
            expected = f"a time not before the row above ({before - start} x 100 ns after the first)"
            raise TraceError(path, line, "1 (TIMESTAMP)", expected, quoted(stamp), "sort the file by time")
        before = now
        yield Arrival(
            (now - start) / TICKS,
            tokens(prompt, path, line, "2 (ContextTokens)"),
            tokens(output, path, line, "3 (GeneratedTokens)"),
        )


def _bad_time(path: Path, line: int, stamp: str) -> TraceError:
    expected = "YYYY-MM-DD HH:MM:SS with up to 7 digits of a second"
    return TraceError(path, line, "1 (TIMESTAMP)", expected, quoted(stamp), "correct or remove the row")
