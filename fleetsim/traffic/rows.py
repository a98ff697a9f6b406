"""Lines of a trace file with their numbers, and the one error that says where a file is wrong."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

LONGEST_LINE = 1 << 20  # characters; a prompt of 10 million tokens in blocks of 512 needs a fifth of it
MOST_TOKENS = 10**9
GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ValueError):
    """A trace file is not what its format says. `line` counts from 1; it is None where no line was read
    (a directory, a file that is not there). `column` is a position, a name, or both.
    """

    def __init__(self, path: Path, line: int | None, column: str | None, expected: str, found: str, todo: str) -> None:
        self.path, self.line, self.column = path, line, column
        self.expected, self.found, self.todo = expected, found, todo
        place = str(path) if line is None else f"{path}:{line}"
        if column is not None:
            place += f": column {column}"
        super().__init__(f"{place}: expected {expected}, found {found}: {todo}")


def quoted(text: str, longest: int = 60) -> str:
    """Text of a file as it may appear in a message: one line, ASCII, not long."""
    return ascii(text if len(text) <= longest else text[: longest - 3] + "...")


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line without its end). Bytes that are not UTF-8 stay in the text as surrogates, for the
    parser of the column to refuse, so that the message can name the column.
    """
    number = 0
    try:
        with _opened(path) as file:
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield number, _checked(line, path, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        found = f"damage after line {number} ({error})"
        raise TraceError(path, number + 1, "1", "a complete gzip file", found, "fetch the file again") from error
    except OSError as error:
        found = error.strerror or str(error)
        raise TraceError(path, None, None, "a readable file", found, "name a trace file") from error


def _opened(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape")
    return path.open(encoding="utf-8-sig", errors="surrogateescape")


def _checked(line: str, path: Path, number: int) -> str:
    if len(line) == LONGEST_LINE:
        raise TraceError(
            path, number, "1", f"lines under {LONGEST_LINE} characters", "a longer one", "is this a trace?"
        )
    if "\0" in line:
        place = str(line.index("\0") + 1)
        raise TraceError(path, number, place, "text", "a NUL byte", "give a text file or its gzip")
    line = line.rstrip("\n")
    if not line:
        raise TraceError(path, number, "1", "a row", "an empty line", "delete the line")
    return line


def begun(path: Path) -> tuple[str, Iterator[tuple[int, str]]]:
    """The first line and the rest; an empty file is an error."""
    rows = numbered(path)
    first = next(rows, None)
    if first is None:
        raise TraceError(path, 1, "1", "a header or a first row", "an empty file", "give a file with rows")
    return first[1], rows


def table(path: Path, *headers: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a CSV file without quoting, its header first; that must be one of `headers` exactly."""
    header, rows = begun(path)
    columns = _columns(header.split(","), headers, path)
    yield 1, list(columns)
    width = len(columns)
    number = 1
    for number, line in rows:
        fields = line.split(",")
        if len(fields) != width:
            at = min(len(fields), width)
            found = f"{len(fields)} in {quoted(line)}"
            todo = "complete or remove the row"
            raise TraceError(path, number, f"{at} ({columns[at - 1]})", f"{width} columns", found, todo)
        yield number, fields
    if number == 1:
        raise TraceError(path, 2, "1", "at least one row", "the end of the file", "give a file with rows")


def _columns(names: list[str], headers: tuple[tuple[str, ...], ...], path: Path) -> tuple[str, ...]:
    """The header that these names are; the error speaks of the likeliest and of the first column that differs."""

    def agreeing(header: tuple[str, ...]) -> int:
        same = [a == b for a, b in zip(names, header, strict=False)]
        return (*same, False).index(False)

    likeliest = max(headers, key=agreeing)
    if tuple(names) == likeliest:
        return likeliest
    at = agreeing(likeliest)
    found = quoted(names[at]) if at < len(names) else "the end of the line"
    expected = f"the header {' or '.join(','.join(header) for header in headers)}"
    raise TraceError(path, 1, str(at + 1), expected, found, "correct the header")


def tokens(text: str, path: Path, line: int, column: str) -> int:
    """A length: a positive whole number of tokens. No format here documents rows of zero length."""
    if text.isdigit() and text.isascii() and len(text) <= 10 and 0 < (value := int(text)) <= MOST_TOKENS:
        return value
    raise TraceError(
        path, line, column, "a whole number of tokens, 1 or more", quoted(text), "correct or remove the row"
    )


def seconds(text: str, path: Path, line: int, column: str) -> float:
    """A finite number that is not negative, written with digits, a point and an exponent only."""
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    raise TraceError(path, line, column, "a finite number, 0 or more", quoted(text), "correct or remove the row")


def in_order(now: float, before: float, path: Path, line: int, column: str) -> None:
    if now < before:
        raise TraceError(
            path, line, column, f"a time not before the row above ({before})", str(now), "sort the file by time"
        )
