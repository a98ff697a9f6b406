"""`inferostat run`: the daemon; without a configuration, with an embedded fleet to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from actuators.model import ActuatorError
from fleetsim.children import ChildError
from fleetsim.conductor import embedded
from fleetsim.scenario import Scenario, ScenarioError, load_wall_clock
from inferostat.api.auth import TokenError
from inferostat.cli import fleet
from inferostat.cli.output import fail, told
from inferostat.cli.state import embedded_dir
from inferostat.config import Config, ConfigError, load, parse
from inferostat.daemon import Daemon, EmbeddedFleet, ListenError
from inferostat.embedded import FleetLink, fleet_config
from inferostat.journal import JournalError
from inferostat.tracing import TracingError

STARTUP_ERRORS = (
    ConfigError,
    ActuatorError,
    JournalError,
    TokenError,
    TracingError,
    ListenError,
    ScenarioError,
    ChildError,
    OSError,
)


def run(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="inferostat.yaml; without it, the embedded fleet.")
    ] = None,
    scenario: Annotated[str, typer.Option(help="Embedded fleet: what happens in it.")] = "steady",
    url_file: Annotated[Path | None, typer.Option(help="Write the page's address here once it answers.")] = None,
    port: Annotated[int, typer.Option(help="Embedded fleet: port of the page.")] = 9464,
) -> None:
    """Sense, analyze, decide, act, until told to stop. SIGHUP reloads the configuration."""
    try:
        if config is not None:
            fleet.run(_daemon(load(config), config, url_file))
        else:
            fleet.run(_embedded(load_wall_clock(scenario), scenario, port))
    except STARTUP_ERRORS as error:
        raise fail(str(error)) from error


async def _daemon(config: Config, path: Path, url_file: Path | None) -> None:
    def announce(url: str) -> None:
        told.print(f"inferostat: mode {config.mode}, page at {url}", markup=False)
        if url_file is not None:
            url_file.write_text(url)

    await Daemon(config, path, time.time).run(announce)


async def _embedded(scenario: Scenario, name: str, port: int) -> None:
    workdir = embedded_dir()
    told.print("starting an embedded fleet: simulated engines behind a real Envoy, mode act")
    # every run has a new fleet: what an earlier one held is gone with its fleet
    for leftover in workdir.glob("journal.sqlite*"):
        leftover.unlink()
    async with embedded(name, workdir) as running:
        document = fleet_config(fleet.setup(running, scenario, port), workdir)
        config = parse(yaml.safe_dump(document), "embedded fleet")
        control_url = running.clients["control_url"]
        daemon = Daemon(config, None, time.time, EmbeddedFleet(running.fleet["admin_url"], control_url))
        link = FleetLink(running.fleet["admin_url"], control_url)
        try:
            await link.start_clients()
        finally:
            await link.close()
        await daemon.run(lambda url: told.print(f"open {url}  (Ctrl-C ends fleet and agent)", markup=False))
