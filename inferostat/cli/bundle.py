"""`inferostat dashboards|rules export DIR`: the Grafana and Prometheus bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dashboards.export import export as export_dashboards
from inferostat.cli.output import fail, told
from rules.export import export as export_rules

dashboards_app = typer.Typer(help="The Grafana dashboard.", no_args_is_help=True, rich_markup_mode=None)
rules_app = typer.Typer(
    help="Recording and alerting rules, and Alertmanager inhibition.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(help="Where to write; made if it is not there.")]
As = Annotated[str | None, typer.Option("--as", help="`kubernetes`: as objects to apply.")]


@dashboards_app.callback()
@rules_app.callback()
def group() -> None:
    """Sub-commands."""


@dashboards_app.command("export")
def dashboards(directory: Directory, form: As = None) -> None:
    """Write the dashboard JSON, or a ConfigMap that Grafana's sidecar picks up."""
    _export(export_dashboards, directory, form)


@rules_app.command("export")
def rules(directory: Directory, form: As = None) -> None:
    """Write the rule files, or a PrometheusRule."""
    _export(export_rules, directory, form)


def _export(work: Callable[[Path, bool], object], directory: Path, form: str | None) -> None:
    if form not in (None, "kubernetes"):
        raise fail(f"--as: expected kubernetes, found {form}")
    try:
        work(directory, form == "kubernetes")
    except OSError as error:
        raise fail(f"expected to write into {directory}, found {error.strerror}; give another folder") from error
    told.print(f"written to {directory}")
