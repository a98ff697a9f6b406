"""Reader of text and OpenMetrics expositions that remembers a target's layout between scrapes.

A target writes the same lines every time, only the numbers change. `ExpositionReader` therefore learns the
layout of a body once: which lines are samples and what stands before each value. As long as the next body
has the same lines but for the values, only the numbers are parsed; any difference means a full parse and a
new layout. Both ways give the same result.

Errors in the content are collected with their line number, never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from collector.model import FloatArray
from collector.sample_line import leading_name, parse_timestamp, parse_value, split_labels, split_line

MAX_ERRORS = 100  # a body of the wrong kind has an error on every line; the first ones tell enough
_PLAIN_NUMBER = {ord(character): None for character in "0123456789+-.eE"}
_COMPANION_OF = ("", "_total", "_count", "_sum", "_bucket")


class Sample(NamedTuple):
    """One wanted series of a body: everything but its value. `labels` must not be changed."""

    name: str
    labels: Mapping[str, str]
    line: int  # 1-based


class ParseError(NamedTuple):
    line: int  # 1-based; 0: the body as a whole
    message: str
    name: str | None = None  # the family that is incomplete, where the line still tells

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Layout:
    """What two scrapes of one target have in common. Its identity tells whether anything but numbers moved."""

    samples: tuple[Sample, ...]
    types: Mapping[str, str]  # family -> what `# TYPE` says
    errors: tuple[ParseError, ...] = ()
    error: str | None = None  # the body is no metrics body, or is cut off
    openmetrics: bool = False

    def families(self) -> dict[str, list[int]]:
        """Sample indices by metric name."""
        grouped: dict[str, list[int]] = {}
        for index, sample in enumerate(self.samples):
            grouped.setdefault(sample.name, []).append(index)
        return grouped


@dataclass(frozen=True)
class Exposition:
    """One body: `values[i]` and `timestamps[i]` (unix s, NaN where not given) belong to `layout.samples[i]`."""

    layout: Layout
    values: FloatArray
    timestamps: FloatArray | None = None  # None: no sample has one


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
        """One body. `complete`: the body cannot have been cut (a file), so its last line needs no line feed."""
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
        parse = _FullParse(lines, content_type, complete, self._wanted)
        exposition = parse.run()
        self._template = parse.template(exposition.layout, key)
        return exposition


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("utf-8", "surrogateescape")


@dataclass
class _FullParse:
    """One pass over all lines: every line is checked, only wanted ones are kept."""

    lines: list[str]
    content_type: str | None
    complete: bool
    wanted: Callable[[str], bool] | None
    samples: list[Sample] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    timestamps: list[float] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    errors: list[ParseError] = field(default_factory=list)
    error_count: int = 0
    fixed: list[int] = field(default_factory=list)
    sample_lines: list[int] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    names: dict[str, bool] = field(default_factory=dict)  # every name seen -> wanted
    blocks: dict[str, dict[str, str] | None] = field(default_factory=dict)  # label text -> labels
    kept: list[int] = field(default_factory=list)  # wanted samples -> position among the sample lines
    plain: bool = True

    def run(self) -> Exposition:
        last = self._last_line()
        openmetrics = (self.lines[last] == "# EOF") if last >= 0 else False
        declared = "openmetrics" in (self.content_type or "").lower()
        for index, line in enumerate(self.lines):
            if not line or line[0] == "#" or line.isspace():
                self._comment(index, line, last)
            else:
                self._sample(index, line, openmetrics or declared)
        self._drop_created()
        error = self._body_error(last, declared and not openmetrics)
        stamped = any(stamp == stamp for stamp in self.timestamps)
        layout = Layout(tuple(self.samples), self.types, self._all_errors(), error, openmetrics or declared)
        return Exposition(layout, np.array(self.values), np.array(self.timestamps) if stamped else None)

    def template(self, layout: Layout, key: tuple[str | None, bool]) -> _Template | None:
        """What to compare the next body with; None when this body's lines carry more than name and value."""
        if not self.plain or not self.sample_lines or layout.error is not None:
            return None
        pick_fixed, pick_samples = _picker(self.fixed), _picker(self.sample_lines)
        return _Template(
            layout, key, len(self.lines), pick_fixed, pick_fixed(self.lines), pick_samples,
            tuple(self.heads), np.array(self.kept, dtype=np.intp),
        )  # fmt: skip

    def _last_line(self) -> int:
        """Index of the last line that is not blank, -1 without."""
        for index in range(len(self.lines) - 1, -1, -1):
            if self.lines[index].strip():
                return index
        return -1

    def _comment(self, index: int, line: str, last: int) -> None:
        self.fixed.append(index)
        if line.startswith("# TYPE "):
            words = line.split()
            if len(words) == 4:
                self.types[words[2].strip('"')] = words[3]
        elif line == "# EOF" and index != last:
            self._report(
                index, "expected nothing after # EOF, found more lines; the target joins several bodies"
            )

    def _sample(self, index: int, line: str, openmetrics: bool) -> None:
        parts = split_line(line)
        value = parse_value(parts.value) if parts is not None else None
        stamp = float("nan")
        if parts is not None and parts.timestamp is not None:
            self.plain = False
            parsed = parse_timestamp(parts.timestamp, openmetrics)
            value, stamp = (value, parsed) if parsed is not None else (None, stamp)
        if parts is None or value is None:
            self._unreadable(index, line)
            return
        block = parts.labels
        labels = self.blocks.get(block)
        if labels is None:
            labels = self.blocks[block] = split_labels(block)
            if labels is None or (not block.isascii() and not _valid_unicode(block)):
                del self.blocks[block]
                self._unreadable(index, line)
                return
        if self.plain:
            head, _, tail = line.rpartition(" ")
            self.plain = tail == parts.value and head != ""
            self.heads.append(head)
        self.sample_lines.append(index)
        if self._is_wanted(parts.name):
            self.kept.append(len(self.sample_lines) - 1)
            self.samples.append(Sample(parts.name, labels, index + 1))
            self.values.append(value)
            self.timestamps.append(stamp)

    def _is_wanted(self, name: str) -> bool:
        known = self.names.get(name)
        if known is None:
            known = self.names[name] = self.wanted is None or self.wanted(name)
        return known

    def _unreadable(self, index: int, line: str) -> None:
        self.fixed.append(index)
        shown = line if len(line) <= 80 else line[:77] + "..."
        shown = shown.encode("utf-8", "backslashreplace").decode("utf-8")
        self._report(
            index,
            f"expected `name{{labels}} value`, found {shown!r}; the line is left out",
            leading_name(line),
        )

    def _report(self, index: int, message: str, name: str | None = None) -> None:
        self.error_count += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(ParseError(index + 1, message, name))

    def _all_errors(self) -> tuple[ParseError, ...]:
        more = self.error_count - len(self.errors)
        if not more:
            return tuple(self.errors)
        return (*self.errors, ParseError(0, f"{more} more lines could not be read"))

    def _drop_created(self) -> None:
        """Leave out `X_created`, the creation time beside counter or histogram X (never a gauge of its own)."""
        names = self.names
        companions = {
            name
            for name in names
            if name.endswith("_created")
            and any(f"{name.removesuffix('_created')}{suffix}" in names for suffix in _COMPANION_OF)
        }
        if not companions:
            return
        keep = [i for i, sample in enumerate(self.samples) if sample.name not in companions]
        self.samples = [self.samples[i] for i in keep]
        self.values = [self.values[i] for i in keep]
        self.timestamps = [self.timestamps[i] for i in keep]
        self.kept = [self.kept[i] for i in keep]

    def _body_error(self, last: int, eof_missing: bool) -> str | None:
        if last < 0:
            return "expected a metrics exposition, found an empty body; check the address and the path"
        if not self.sample_lines and self.error_count:
            kind = _kind_of_body(self.lines[: last + 1])
            told = f" ({self.content_type})" if self.content_type else ""
            return f"expected a metrics exposition, found {kind}{told}; check the address and the path"
        if self.complete:
            return None
        if eof_missing:
            return "expected `# EOF` at the end of an OpenMetrics body, found none; it was cut off, read it again"
        if self.lines[-1] and self.lines[-1] != "# EOF":
            return f"expected a line feed at the end of line {last + 1}, found none; the body was cut off, read it again"
        return None


def _picker(indices: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """`itemgetter` that always gives a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    chosen = tuple(indices)
    return lambda lines: tuple(lines[index] for index in chosen)


def _valid_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _kind_of_body(lines: Sequence[str]) -> str:
    start = "\n".join(lines[:20]).lstrip()[:200]
    if start.startswith("<"):
        return "an HTML or XML page"
    if start.startswith(("{", "[")):
        return "JSON"
    if any(ord(character) < 32 and character not in "\t\n\r" for character in start):
        return "binary data"
    return f"other text ({start[:40]!r})"
