"""`inferostat diagnose TARGET...`: what is wrong, from a few scrapes, without any configuration."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from analyzers.diagnosis import diagnose as rank
from analyzers.model import Analysis, Context, Severity
from analyzers.registry import analyze
from collector.history import History
from collector.model import Frame, TargetRole
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import StaticTargets, Target, TargetError, target
from inferostat.cli import fleet
from inferostat.cli.duration import seconds
from inferostat.cli.findings import findings_table
from inferostat.cli.output import (
    FINDINGS,
    FINE,
    PARTIAL,
    UNREACHABLE,
    Format,
    Output,
    emit,
    fail,
    table,
    told,
)

POOL = "default"


class FailOn(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


def diagnose(
    targets: Annotated[list[str], typer.Argument(help="Engines: http://host:port[/metrics].")],
    gpu: Annotated[list[str] | None, typer.Option(help="GPU exporter; may be given several times.")] = None,
    gateway: Annotated[list[str] | None, typer.Option(help="Gateway's metrics; may be given several times.")] = None,
    samples: Annotated[int, typer.Option(min=2, help="How many scrapes.")] = 3,
    interval: Annotated[str, typer.Option(help="Between scrapes, such as 5s.")] = "5s",
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = FailOn.CRITICAL,
    output: Output = Format.TABLE,
) -> None:
    """Scrape a few times, analyze, and rank what was found."""
    try:
        wanted = [
            *(target(url, TargetRole.ENGINE, pool=POOL) for url in targets),
            *(target(url, TargetRole.GPU, pool=POOL) for url in gpu or ()),
            *(target(url, TargetRole.GATEWAY, pool=POOL) for url in gateway or ()),
        ]
        period = seconds(interval)
    except (TargetError, ValueError) as error:
        raise fail(str(error)) from error
    frame, analysis = fleet.run(_look(wanted, samples, period))
    document: dict[str, Any] = dict(rank(analysis))
    verdict = document["verdict"]
    shown = table("Verdict", "finding", "layer", "sure", "why")
    sure = f"{verdict['confidence']:.0%}" if verdict["slug"] else ""
    shown.add_row(verdict["slug"] or "none", verdict["layer"], sure, verdict["why"])
    emit(
        {**document, "targets": [_target(frame, one.name) for one in wanted]},
        output,
        [shown, findings_table(analysis.findings), _recommended(document)],
    )
    raise typer.Exit(_code(frame, analysis, fail_on))


async def _look(wanted: list[Target], samples: int, period: float) -> tuple[Frame, Analysis]:
    """The last frame and the analysis of it, each sample analyzed so that findings keep their onset."""
    settings = ScrapeSettings(interval_s=period, jitter=0.0, deadline_s=min(period, 5.0), backoff_cap_s=0.0)
    source = ScrapeSource(StaticTargets(wanted), settings)
    history, analysis = History(), Analysis(0.0)
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        for number in range(samples):
            await asyncio.sleep(max(0.0, start + number * period - loop.time()))
            told.print(f"scrape {number + 1} of {samples}", style="dim")
            frame = await source.collect(time.time())
            history.append(frame)
            context = Context(
                interval_s=period,
                freshness_s=settings.freshness,
                previous=analysis.findings,
                previous_measures=analysis.measures,
            )
            analysis = analyze(history, frame, context, frame.at)
    finally:
        await source.close()
    return frame, analysis


def _target(frame: Frame, name: str) -> dict[str, Any]:
    status = next(one for one in frame.targets if one.name == name)
    return {
        "name": name,
        "role": status.role.value,
        "url": status.url,
        "up": status.up,
        "product": status.product,
        "error": status.error,
    }


def _recommended(document: dict[str, Any]) -> Any:
    shown = table("What to do", "lever", "kind", "what")
    for item in document["recommendations"]:
        shown.add_row(str(item["lever"]), str(item["optimisation"]), str(item["text"]))
    return shown


def _code(frame: Frame, analysis: Analysis, fail_on: FailOn) -> int:
    if not any(one.scraped_at is not None for one in frame.targets):
        return UNREACHABLE
    if fail_on is not FailOn.NEVER:
        least = Severity[fail_on.name]
        if any(finding.severity >= least for finding in analysis.findings):
            return FINDINGS
    return FINE if all(one.up for one in frame.targets) else PARTIAL
