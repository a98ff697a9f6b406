"""`inferostat once`: look once, decide as if in mode advise, move nothing."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from actuators.model import ActuatorError
from analyzers.diagnosis import finding_document
from analyzers.model import Severity
from inferostat.assembly import assemble
from inferostat.cli import fleet
from inferostat.cli.findings import findings_table
from inferostat.cli.output import FINDINGS, FINE, PARTIAL, UNREACHABLE, Format, Output, emit, fail, table
from inferostat.config import Config, ConfigError, load
from inferostat.journal import JournalError
from inferostat.loop import CycleReport


def once(
    config: Annotated[Path, typer.Option("--config", "-c", help="inferostat.yaml.")],
    samples: Annotated[int, typer.Option(min=1, help="Scrapes before the verdict; rates need three.")] = 4,
    output: Output = Format.TABLE,
) -> None:
    """One verdict on the configured fleet and what would be done about it."""
    try:
        report = fleet.run(_look(load(config), samples))
    except (ConfigError, ActuatorError, JournalError) as error:
        raise fail(str(error)) from error
    emit(
        _document(report),
        output,
        [_targets(report), findings_table(report.analysis.findings), _decided(report)],
    )
    raise typer.Exit(_code(report))


async def _look(config: Config, samples: int) -> CycleReport:
    """Cycles with a journal of their own, so that a running agent's is not touched."""
    with tempfile.TemporaryDirectory(prefix="inferostat-once-") as folder:
        parts = assemble(config.model_copy(update={"journal": Path(folder) / "journal.sqlite"}))
        parts.loop.advise_only()
        try:
            report = await parts.loop.run_cycle(time.time())
            for _ in range(samples - 1):
                await asyncio.sleep(min(config.interval, 5.0))
                report = await parts.loop.run_cycle(time.time())
            return report
        finally:
            await parts.close()


def _document(report: CycleReport) -> dict[str, Any]:
    considered = report.decision.considered if report.decision else ()
    return {
        "report": report.sentence,
        "targets": [
            {"name": t.name, "role": t.role.value, "url": t.url, "up": t.up, "error": t.error}
            for t in report.frame.targets
        ],
        "findings": [finding_document(finding) for finding in report.analysis.findings],
        "considered": [
            {
                "lever": item.key.lever.value,
                "target": item.key.target,
                "result": item.result,
                "steps": [{"name": s.name.value, "value": s.value, "reason": s.reason} for s in item.steps],
            }
            for item in considered
        ],
    }


def _targets(report: CycleReport) -> Any:
    shown = table("Targets", "name", "role", "state", "error")
    for target in report.frame.targets:
        shown.add_row(target.name, target.role.value, "up" if target.up else "down", target.error or "")
    return shown


def _decided(report: CycleReport) -> Any:
    shown = table("Levers considered", "lever", "target", "result")
    for item in report.decision.considered if report.decision else ():
        shown.add_row(item.key.lever.value, item.key.target, item.result)
    return shown


def _code(report: CycleReport) -> int:
    targets = report.frame.targets
    if targets and not any(target.up for target in targets):
        return UNREACHABLE
    if any(finding.severity is Severity.CRITICAL for finding in report.analysis.findings):
        return FINDINGS
    return FINE if all(target.up for target in targets) else PARTIAL
