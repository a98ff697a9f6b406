"""What the handlers work with: the board, the metrics' registry, the controls and the server's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry

from analyzers.runbook import section
from inferostat.api.auth import is_loopback
from inferostat.api.controls import Controls, FleetControls
from inferostat.api.state import StatusBoard


@dataclass(frozen=True)
class ApiSettings:
    """Loopback unless configured otherwise. `allowed_hosts`: further names under which loopback is served."""

    token: str
    host: str = "127.0.0.1"
    port: int = 0
    allowed_hosts: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Services:
    """`fleet` is there in the embedded fleet only. `runbook`: slug -> its section of docs/findings.md."""

    board: StatusBoard
    registry: CollectorRegistry
    settings: ApiSettings
    controls: Controls
    clock: Callable[[], float]
    fleet: FleetControls | None = None
    runbook: Callable[[str], str | None] = section

    @property
    def page_token(self) -> str | None:
        """The token for the page itself: only the embedded fleet's visitor, and only on this machine."""
        trusted = self.board.embedded and is_loopback(self.settings.host)
        return self.settings.token if trusted else None


SERVICES: web.AppKey[Services] = web.AppKey("services", Services)
