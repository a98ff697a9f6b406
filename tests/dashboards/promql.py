"""What a PromQL expression refers to: enough of the grammar for the ones shipped, promtool has the rest."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_RANGE = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"(?<![\w:$.])([a-zA-Z_:][\w:]*)\s*(\(?)")
_WORDS = {"and", "or", "unless", "offset", "bool", "group_left", "group_right", "inf", "nan"}


def metrics(expr: str) -> set[str]:
    """Names of the series selected."""
    bare = _GROUPING.sub(" ", re.sub(r"\{[^{}]*\}", " ", _STRING.sub('""', expr)))
    bare = re.sub(r"\boffset\s+\w+", " ", _RANGE.sub(" ", bare))
    return {name for name, call in _NAME.findall(bare) if not call and name.lower() not in _WORDS} - _aggregations(bare)


def _aggregations(bare: str) -> set[str]:
    """Operators written before their `by` clause, which leaves no bracket directly behind them."""
    return set(re.findall(r"\b(sum|max|min|avg|count|quantile)\s+\(", bare))


def matched_labels(expr: str) -> set[str]:
    """Labels in matchers."""
    return set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expr))


def ranges(expr: str) -> list[str]:
    """The text of every range selector."""
    return _RANGE.findall(expr)


def counted_outside_rate(expr: str, counters: set[str]) -> set[str]:
    """Counters that are read as if they were gauges."""
    inside = re.sub(r"\b(?:rate|irate|increase|resets)\(\s*[a-zA-Z_:][\w:]*(?:\{[^{}]*\})?\[[^\]]*\]\s*\)", " ", expr)
    return metrics(inside) & counters


def substitute(expr: str, values: dict[str, str]) -> str:
    """Grafana's variables replaced; one that has no value is an error of the dashboard."""
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    if left := re.findall(r"\$\w+", expr):
        raise ValueError(f"expected only known variables, found {left} in {expr}")
    return expr
