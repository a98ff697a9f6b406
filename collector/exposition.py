"""Reader of text and OpenMetrics expositions that remembers a target's layout between scrapes.

A target writes the same lines every time, only the numbers change. `ExpositionReader` therefore learns the
layout of a body once: which lines are samples and what stands before each value. As long as the next body
has the same lines but for the values, only the numbers are parsed; any difference means a full parse and a
new layout. Both ways give the same result.

Errors in the content are collected with their line number, never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter

import numpy as np

from collector.full_parse import FullParse
from collector.layout import Exposition, Layout, ParseError, Sample
from collector.model import FloatArray
from collector.sample_line import parse_value

__all__ = ["Exposition", "ExpositionReader", "Layout", "ParseError", "Sample"]

_PLAIN_NUMBER = {ord(character): None for character in "0123456789+-.eE"}


@dataclass(frozen=True)
class _Template:
    """The learnt lines: `fixed` must come back byte for byte, `heads` is what precedes each value."""

    layout: Layout
    key: tuple[str | None, bool]
    size: int
    pick_fixed: Callable[[Sequence[str]], tuple[str, ...]]
    fixed: tuple[str, ...]
    pick_samples: Callable[[Sequence[str]], tuple[str, ...]]
    heads: tuple[str, ...]
    wanted: np.ndarray[tuple[int], np.dtype[np.intp]]

    @classmethod
    def learn(cls, parse: FullParse, layout: Layout, key: tuple[str | None, bool]) -> _Template | None:
        """What to compare the next body with; None when this one's lines carry more than name and value."""
        if not parse.plain or not parse.sample_lines or layout.error is not None:
            return None
        pick_fixed, pick_samples = _picker(parse.fixed), _picker(parse.sample_lines)
        return cls(
            layout=layout,
            key=key,
            size=len(parse.lines),
            pick_fixed=pick_fixed,
            fixed=pick_fixed(parse.lines),
            pick_samples=pick_samples,
            heads=tuple(parse.heads),
            wanted=np.array(parse.kept, dtype=np.intp),
        )

    def values(self, lines: list[str]) -> FloatArray | None:
        """The wanted values, or None when anything but a number differs."""
        if len(lines) != self.size or self.pick_fixed(lines) != self.fixed:
            return None
        heads, _, tails = zip(*map(str.rpartition, self.pick_samples(lines), repeat(" ")), strict=True)
        if heads != self.heads:
            return None
        try:
            if "".join(tails).translate(_PLAIN_NUMBER):
                numbers = [_strict_value(tail) for tail in tails]
            else:
                numbers = list(map(float, tails))
        except ValueError:
            return None
        return np.array(numbers)[self.wanted]


def _strict_value(text: str) -> float:
    value = parse_value(text)
    if value is None:
        raise ValueError(text)
    return value


class ExpositionReader:
    """Reads the bodies of one target. `wanted` chooses metric names; None reads all."""

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self._wanted = wanted
        self._template: _Template | None = None

    def read(self, body: bytes, content_type: str | None = None, complete: bool = False) -> Exposition:
        """One body. `complete`: it cannot have been cut (a file), so its last line needs no line feed."""
        text = _decode(body)
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        key = (content_type, complete)
        template = self._template
        if template is not None and template.key == key:
            values = template.values(lines)
            if values is not None:
                return Exposition(template.layout, values)
        parse = FullParse(lines, content_type, complete, self._wanted)
        exposition = parse.run()
        self._template = _Template.learn(parse, exposition.layout, key)
        return exposition


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("utf-8", "surrogateescape")


def _picker(indices: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """`itemgetter` that always gives a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    chosen = tuple(indices)
    return lambda lines: tuple(lines[index] for index in chosen)
