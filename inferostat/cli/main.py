"""The command line: one module a command."""

from __future__ import annotations

import logging

import typer

from inferostat import VERSION
from inferostat.cli import bundle, demo, diagnose, explain, history, once, run, signals

app = typer.Typer(
    help="A thermostat for LLM inference fleets: senses, diagnoses, and moves the levers it was given.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(demo.demo)
app.command()(once.once)
app.command()(signals.signals)
app.command()(diagnose.diagnose)
app.command()(history.actions)
app.command()(history.pause)
app.command()(history.resume)
app.command()(explain.explain)
app.add_typer(bundle.dashboards_app, name="dashboards")
app.add_typer(bundle.rules_app, name="rules")


@app.callback(invoke_without_command=True)
def common(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="More log on stderr."),
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    if version:
        typer.echo(f"inferostat {VERSION}")
        raise typer.Exit


def main() -> None:
    """Entry point of the console script."""
    app()
