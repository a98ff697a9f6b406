"""Grammar of one sample line of the Prometheus text format 0.0.4 and of OpenMetrics 1.0.

Written from https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0 document,
wider where exporters in the field are: blanks around commas and equal signs, a trailing comma, `{}`, quoted
(UTF-8) names, an exemplar after the value whatever the content type says.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LABEL = rf"(?:[a-zA-Z_][a-zA-Z0-9_]*|{_QUOTED})[ \t]*=[ \t]*{_QUOTED}"
_ITEM = rf"[ \t]*(?:{_LABEL}|{_QUOTED})[ \t]*"
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LINE = re.compile(
    rf"[ \t]*({_NAME})?[ \t]*"
    rf"(?:\{{((?:{_ITEM}(?:,{_ITEM})*,?)?[ \t]*)\}})?[ \t]*"
    r"([^ \t#{}]+)(?:[ \t]+([^ \t#]+))?[ \t]*(?:#.*)?"
)
_PAIR = re.compile(rf"([a-zA-Z_][a-zA-Z0-9_]*|{_QUOTED})[ \t]*=[ \t]*({_QUOTED})|({_QUOTED})")
_LEADING_NAME = re.compile(rf"[ \t]*({_NAME})")
_ESCAPE = re.compile(r'\\([\\"n])')
_UNESCAPED = {"\\": "\\", '"': '"', "n": "\n"}
_BARE_TIMESTAMP = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)


class Parts(NamedTuple):
    """A line taken apart, nothing converted yet. `labels` is the text between the braces, "" without."""

    name: str
    labels: str
    value: str
    timestamp: str | None


def split_line(line: str) -> Parts | None:
    """The parts of a sample line, or None where it is none."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    name, labels, value, timestamp = match.groups()
    if name is None:
        name = _quoted_name(labels or "")
        if name is None:
            return None
    return Parts(name, labels or "", value, timestamp)


def _quoted_name(block: str) -> str | None:
    """The metric name of `{"some.name",label="x"}`: the first item, if it is a string alone."""
    first = _PAIR.match(block.lstrip(" \t"))
    return _unquote(first.group(3)) if first is not None and first.group(3) else None


def split_labels(block: str) -> dict[str, str] | None:
    """Labels of the text between the braces, unescaped; None when a label name is there twice."""
    labels: dict[str, str] = {}
    for name, value, alone in _PAIR.findall(block):
        if alone:
            continue
        key = _unquote(name) if name[0] == '"' else name
        if key in labels:
            return None
        labels[key] = _unquote(value)
    return labels


def _unquote(text: str) -> str:
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    return _ESCAPE.sub(lambda match: _UNESCAPED[match.group(1)], inner)


def parse_value(text: str) -> float | None:
    """A float as the formats write it; None for what only Python takes (`1_000`, other digits, blanks)."""
    if "_" in text or not text.isascii() or text != text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def parse_timestamp(text: str, openmetrics: bool) -> float | None:
    """Unix seconds; the text format writes milliseconds, OpenMetrics seconds."""
    if _BARE_TIMESTAMP.fullmatch(text) is None:
        return None
    return float(text) if openmetrics else float(text) / 1000.0


def leading_name(line: str) -> str | None:
    """The metric name an unreadable line begins with, if any: its family is incomplete."""
    match = _LEADING_NAME.match(line)
    return match.group(1) if match else None
