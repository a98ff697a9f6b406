"""The command line: one module a command, imported only when its command is called."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from inferostat import VERSION

# command -> where it lives; a Typer application there is a group of commands
COMMANDS = {
    "run": "inferostat.cli.run:run",
    "demo": "inferostat.cli.demo:demo",
    "simulate": "inferostat.cli.simulate:simulate",
    "once": "inferostat.cli.once:once",
    "signals": "inferostat.cli.signals:signals",
    "diagnose": "inferostat.cli.diagnose:diagnose",
    "actions": "inferostat.cli.history:actions",
    "pause": "inferostat.cli.history:pause",
    "resume": "inferostat.cli.history:resume",
    "explain": "inferostat.cli.explain:explain",
    "dashboards": "inferostat.cli.bundle:dashboards_app",
    "rules": "inferostat.cli.bundle:rules_app",
}


class LazyGroup(TyperGroup):
    """Knows its commands by name; `pause` must not wait for the statistics that `diagnose` needs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            found = single
        command = get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    help="A thermostat for LLM inference fleets: senses, diagnoses, and moves the levers it was given.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
