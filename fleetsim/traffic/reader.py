"""Opens a trace file of any known format."""

from __future__ import annotations

from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from fleetsim.traffic import azure, mooncake, own, servegen
from fleetsim.traffic.arrival import Stream
from fleetsim.traffic.rows import TraceError, begun, quoted
from fleetsim.traffic.servegen import RateProfile, read_profile

Format = Literal["azure", "mooncake", "servegen", "own"]
_READERS = {"azure": azure.read, "mooncake": mooncake.read, "own": own.read}
_RECOGNISERS = {
    "azure": azure.recognises,
    "mooncake": mooncake.recognises,
    "servegen": servegen.recognises,
    "own": own.recognises,
}


def recognise(path: str | PathLike[str]) -> Format:
    """The format, by the header or first row; TraceError if it is none of ours."""
    file = Path(path)
    first, _ = begun(file)
    for name in get_args(Format):
        if _RECOGNISERS[name](first):
            found: Format = name
            return found
    headers = (",".join(columns) for columns in (azure.COLUMNS, servegen.COLUMNS, own.REQUIRED))
    expected = f"a JSON object or one of the headers {' | '.join(headers)}"
    raise TraceError(file, 1, "1", expected, quoted(first), "convert the file; docs/traffic.md has the formats")


def open_trace(path: str | PathLike[str], format: Format | None = None) -> Stream:
    """Arrivals of a trace, read as they are taken: memory does not grow with the file. What comes before the second
    arrival is checked now, every other line when it is reached; each fault is a TraceError.
    """
    file = Path(path)
    chosen = format or recognise(file)
    if chosen == "servegen":
        todo = "open it with open_profile and generate arrivals at that rate"
        raise TraceError(file, 1, "1", "arrivals", "a rate profile", todo)
    stream = _READERS[chosen](file)
    return chain((next(stream),), stream)


def open_profile(path: str | PathLike[str]) -> RateProfile:
    """A ServeGen rate file."""
    return read_profile(Path(path))
