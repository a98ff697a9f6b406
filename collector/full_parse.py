"""One pass over all lines of an exposition: every line is checked, only wanted series are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.layout import Exposition, Layout, ParseError, Sample
from collector.sample_line import leading_name, parse_timestamp, parse_value, split_labels, split_line

MAX_ERRORS = 100  # a body of the wrong kind has an error on every line; the first ones tell enough
_COMPANION_OF = ("", "_total", "_count", "_sum", "_bucket")


@dataclass
class FullParse:
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
        stamped = not np.isnan(self.timestamps).all()
        layout = Layout(tuple(self.samples), self.types, self._all_errors(), error, openmetrics or declared)
        return Exposition(layout, np.array(self.values), np.array(self.timestamps) if stamped else None)

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
            self._report(index, "expected nothing after # EOF, found more lines; the target joins several bodies")

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
        """Leave out `X_created`, the creation time beside counter or histogram X: no gauge of its own."""
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
            return "expected `# EOF` at the end of an OpenMetrics body, found none; it was cut off, read again"
        if self.lines[-1] and self.lines[-1] != "# EOF":
            return f"expected a line feed after line {last + 1}, found none; the body was cut off, read again"
        return None


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
