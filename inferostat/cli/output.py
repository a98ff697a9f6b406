"""Data on stdout in the form asked for; everything else goes to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

SCHEMA_VERSION = 1

# exit codes of the command line
FINE, FINDINGS, USAGE, UNREACHABLE, PARTIAL = 0, 1, 2, 3, 4


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the data on stdout.")]

told = Console(stderr=True, highlight=False)


def fail(message: str, code: int = USAGE) -> typer.Exit:
    """Say what is wrong on stderr; raise what it returns."""
    told.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(code)


def emit(document: Mapping[str, Any], form: Format, tables: Sequence[Table] = ()) -> None:
    """Write one document, with its schema_version, or its tables."""
    if form is Format.TABLE:
        console = Console(file=sys.stdout, highlight=False)
        for table in tables:
            console.print(table)
        return
    whole = plain({"schema_version": SCHEMA_VERSION, **document})
    if form is Format.JSON:
        sys.stdout.write(json.dumps(whole, indent=2, allow_nan=False) + "\n")
    else:
        sys.stdout.write(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))


def plain(value: Any) -> Any:
    """JSON-ready: a number that is none becomes null, never 0 and never the word NaN."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str | int) or value is None:
        return value
    return str(value)


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
