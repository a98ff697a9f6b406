"""What the agent can scrape of the fleet in virtual time: its targets, and the bodies that its exporters would show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from collector.model import TargetRole
from collector.sources.fetch import Body, FetchError
from collector.sources.targets import Target, parse_file_sd
from fleetsim.virtual.simulation import Simulation
from fleetsim.virtual.telemetry import ScrapeRefused, Telemetry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class VirtualTargets:
    """The fleet's targets, as a file_sd file would list them; implements `collector.sources.targets.Discovery`."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._groups: Sequence[Mapping[str, Any]] = ()
        self._targets: tuple[Target, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def targets(self) -> Sequence[Target]:
        groups = self._telemetry.targets()
        if groups != self._groups:
            self._groups = groups
            self._targets = parse_file_sd(json.dumps(groups))
        return self._targets

    def engines(self) -> dict[str, str]:
        """Names of the engines by address: how a gateway calls them, and how the fleet does."""
        return {one.address: one.name for one in self.targets() if one.role is TargetRole.ENGINE}


class VirtualFetcher:
    """Bodies of the fleet's telemetry at the time it is there; implements `collector.sources.scrape.Fetcher`."""

    def __init__(self, telemetry: Telemetry, simulation: Simulation) -> None:
        self._telemetry = telemetry
        self._simulation = simulation

    async def fetch(self, target: Target, deadline_s: float, max_bytes: int) -> Body:
        """Bodies are whole and take no time. FetchError as over HTTP where the target does not answer."""
        try:
            body = self._telemetry.body(target.name, self._simulation.now)
        except ScrapeRefused as refusal:
            raise FetchError(
                f"expected a connection to {target.address}, found {refusal}; check that the target runs"
            ) from None
        return Body(body.encode(), CONTENT_TYPE)

    async def close(self) -> None:
        """Nothing is open."""
