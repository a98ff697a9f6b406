"""Durations on the command line: `500ms`, `5s`, `10m`, or seconds."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from inferostat.config import Duration

_ADAPTER: TypeAdapter[float] = TypeAdapter(Duration)


def seconds(text: str) -> float:
    """Seconds; ValueError says what was expected."""
    try:
        return _ADAPTER.validate_python(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValidationError as error:
        raise ValueError(f"expected a duration such as 500ms, 5s or 10m, found {text!r}") from error
