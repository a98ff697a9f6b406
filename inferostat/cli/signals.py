"""`inferostat signals TARGET...`: what is sensed of a URL or a file, and why what is not is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.table import Table

from collector.reading import TargetReader, reading_document
from collector.sources.fetch import HEADERS, FetchError, fetch
from collector.sources.targets import TargetError, target
from inferostat.cli import fleet
from inferostat.cli.output import FINE, PARTIAL, UNREACHABLE, Format, Output, emit, fail, table

_SCHEMES = ("http://", "https://")
DEADLINE_S = 10.0
LARGEST_BODY_BYTES = 64 * 1024 * 1024


def signals(
    targets: Annotated[list[str], typer.Argument(help="http://host:port[/metrics], or a file with a body.")],
    product: Annotated[str | None, typer.Option(help="vllm, dcgm or envoy, where the body does not tell.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Every canonical signal of each target with its value, or the reason why it is unknown."""
    documents = fleet.run(_read_all(targets, product))
    emit({"targets": documents}, output, [_table(document) for document in documents])
    failed = sum(1 for document in documents if document.get("error"))
    raise typer.Exit(FINE if not failed else UNREACHABLE if failed == len(documents) else PARTIAL)


async def _read_all(targets: list[str], product: str | None) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(_read(one, product) for one in targets)))


async def _read(name: str, product: str | None) -> dict[str, Any]:
    try:
        body, content_type = await _body(name)
    except (FetchError, OSError) as error:
        nothing: dict[str, Any] = {"signals": {}, "series": [], "parse_errors": [], "warnings": []}
        return {"target": name, "engine": None, "error": str(error), **nothing}
    whole = not name.startswith(_SCHEMES)  # a file is complete, whatever its last line ends in
    reading = TargetReader(product).read(body, content_type, complete=whole)
    return {**reading_document(name, reading), "error": reading.error}


async def _body(name: str) -> tuple[bytes, str | None]:
    if not name.startswith(_SCHEMES):
        return await asyncio.to_thread(Path(name).read_bytes), None
    try:
        found = target(name)
    except TargetError as error:
        raise fail(str(error)) from error
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        got = await fetch(session, found, DEADLINE_S, LARGEST_BODY_BYTES)
    return got.data, got.content_type


def _table(document: dict[str, Any]) -> Table:
    known = sum(1 for item in document["signals"].values() if item["value"] is not None)
    engine = document["engine"] or "not recognised"
    title = f"{document['target']}: {engine}, {known} of {len(document['signals'])} signals known"
    shown = table(document.get("error") or title, "signal", "value", "unit", "state", "reason")
    for name, item in document["signals"].items():
        shown.add_row(name, _shown(item["value"]), item["unit"], str(item["state"]), item["reason"] or "")
    for text in (*document["parse_errors"], *document["warnings"]):
        shown.add_row("", "", "", "warning", str(text))
    return shown


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        count = value["count"]
        return f"{count:g} samples" + (f", mean {value['sum'] / count:.4g}" if count else "")
    return f"{value:g}"
