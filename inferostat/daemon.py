"""The daemon: schedule, reload, pause, API and an orderly end. Signals only set flags, read at the top of the loop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actuators.model import ActuatorError, Status
from inferostat import VERSION
from inferostat.api.auth import load_or_create_token
from inferostat.api.controls import ControlError
from inferostat.api.server import StatusServer
from inferostat.api.services import ApiSettings, Services
from inferostat.api.state import StatusBoard
from inferostat.api.view import CycleView, Pause
from inferostat.assembly import Parts, assemble
from inferostat.config import Config, ConfigError, load
from inferostat.embedded import FleetLink
from inferostat.loop import CycleReport, Loop
from inferostat.present import CycleFacts
from inferostat.telemetry import Telemetry

log = logging.getLogger("inferostat")

SHUTDOWN_S = 8.0


@dataclass
class Flags:
    """What the outside asked for since the last look."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reload: bool = False


@dataclass(frozen=True)
class EmbeddedFleet:
    """Where the embedded fleet and its clients can be reached."""

    admin_url: str
    clients_url: str | None


class Daemon:
    """Runs until told to stop. `path` None: the configuration cannot be reloaded (embedded fleet)."""

    def __init__(
        self,
        config: Config,
        path: Path | None,
        clock: Callable[[], float],
        embedded: EmbeddedFleet | None = None,
    ) -> None:
        self.config = config
        self.path = path
        self.clock = clock
        self.flags = Flags()
        self.telemetry = Telemetry(VERSION, str(config.mode), clock)
        self.board = StatusBoard(VERSION, str(config.mode), embedded is not None, clock())
        self._embedded = embedded
        self._link: FleetLink | None = None
        self._parts: Parts | None = None
        self._down: set[str] = set()
        self._planned = 0.0

    async def run(self, announce: Callable[[str], None] = lambda url: None) -> None:
        """Serve and cycle until `flags.stop`; `announce` is told the page's address once it answers."""
        self._install_signals()
        self._parts = assemble(self.config)
        if self._parts.journal.recovered is not None:
            log.error("journal_recovered %s", self._parts.journal.recovered)
        self.telemetry.configuration_loaded(True, self.clock())
        self.board.configured(str(self.config.mode))
        if self._embedded is not None:
            self._link = FleetLink(self._embedded.admin_url, self._embedded.clients_url)
        server = StatusServer(self._services())
        try:
            announce(await server.start())
            await self._recover(self._parts.loop)
            await self._cycle_until_stopped()
        finally:
            await asyncio.wait_for(self._close(server), SHUTDOWN_S)

    # Controls of the API

    async def pause(self, reason: str) -> None:
        assert self._parts is not None
        self._parts.journal.pause(self.clock(), "api", reason)

    async def resume(self) -> None:
        assert self._parts is not None
        self._parts.journal.resume()

    async def reload(self) -> None:
        """Take up the file again; on any error the old configuration stays in force and the error is told."""
        if self.path is None:
            raise ControlError("expected a configuration file to reload, found the embedded fleet's own", 409)
        try:
            config = load(self.path)
            parts = assemble(config, keep=self._parts)
        except (ConfigError, ActuatorError) as error:
            self.telemetry.configuration_loaded(False, self.clock())
            log.error("reload_failed the old configuration stays in force: %s", error)
            raise ControlError(str(error), 422) from error
        old, self._parts, self.config = self._parts, parts, config
        if old is not None:
            await old.close(keep=parts)
        self.telemetry.configuration_loaded(True, self.clock())
        self.telemetry.mode(str(config.mode))
        self.board.configured(str(config.mode))
        log.info("reloaded %s", self.path)

    # The loop

    async def _cycle_until_stopped(self) -> None:
        """The next cycle is due one period after the last was due, so that delays do not add up."""
        self._planned = self.clock()
        while not self.flags.stop.is_set():
            if self.flags.reload:
                self.flags.reload = False
                await self._reload_on_signal()
            try:
                await self._one_cycle()
            except Exception:  # nothing around us, and no bug of ours, may end the loop
                log.exception("cycle_failed please report it as a bug")
                self.telemetry.cycle_done("failed", None)
            self._planned += self.config.interval
            rest = self._planned - self.clock()
            if rest <= 0:
                log.warning("cycle_overrun by %.2f s, the next starts at once", -rest)
                self._planned = self.clock()
                continue
            try:
                await asyncio.wait_for(self.flags.stop.wait(), rest)
            except TimeoutError:
                continue

    async def _one_cycle(self) -> None:
        parts = self._parts
        assert parts is not None
        now = self.clock()
        paused = parts.journal.paused()
        report = await parts.loop.run_cycle(now, paused is not None)
        self._log(report)
        overran = report.phases["total"] > self.config.interval
        self._count(report, overran)
        self.telemetry.paused(paused is not None)
        self.board.pause(None if paused is None else Pause(paused.at, paused.reason), now)
        if report.decision is None:
            return
        self.board.publish(
            CycleView(
                cycle=report.number,
                at=report.at,
                duration_s=report.phases["total"],
                interval_s=self.config.interval,
                report=report.sentence,
                frame=report.frame,
                history=parts.loop.history,
                analysis=report.analysis,
                decision=report.decision,
                outcomes=report.outcomes,
                readings=report.readings,
                overran=overran,
                settings=parts.loop.settings.pools,
                fleet=await self._link.info() if self._link is not None else None,
            )
        )

    def _count(self, report: CycleReport, overran: bool) -> None:
        for phase, seconds in report.phases.items():
            self.telemetry.phase_done(phase, seconds)
        result = "failed" if report.error else "ok" if all(t.up for t in report.frame.targets) else "degraded"
        facts = CycleFacts(report.at, report.frame, report.analysis, report.readings)
        self.telemetry.cycle_done(result, None if report.error else facts, overran)
        if report.decision is None:
            return
        for action, outcome in zip(report.decision.actions, report.outcomes, strict=True):
            self.telemetry.action_done(action.key.lever, outcome.status)
            if action.undo_of is not None and outcome.status is Status.APPLIED:
                self.telemetry.reverted(action.key.lever)

    def _log(self, report: CycleReport) -> None:
        """What was done, every time; a target that fails or answers again, once."""
        if report.error is not None:
            log.error("cycle_failed %s", report.sentence)
        elif report.decision is not None and report.decision.actions:
            log.info("acted %s", report.decision.sentence())
        for outcome in report.outcomes:
            if outcome.status not in (Status.APPLIED, Status.ADVISED):
                log.warning("action_%s %s %s", outcome.status, outcome.action_id, outcome.detail)
        down = {target.name for target in report.frame.targets if not target.up}
        for target in report.frame.targets:
            if target.name in down - self._down:
                log.warning("target_failed %s %s", target.name, target.error)
            elif target.name in self._down - down:
                log.info("target_answers %s", target.name)
        self._down = down

    async def _recover(self, loop: Loop) -> None:
        for outcome in await loop.recover(self.clock()):
            log.info("settled %s %s %s", outcome.status, outcome.action_id, outcome.detail)

    async def _reload_on_signal(self) -> None:
        try:
            await self.reload()
        except ControlError:
            return  # told in the log and as a metric

    def _install_signals(self) -> None:
        running = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, self.flags.stop.set)
        running.add_signal_handler(signal.SIGHUP, self._ask_reload)

    def _ask_reload(self) -> None:
        self.flags.reload = True

    def _services(self) -> Services:
        api = self.config.api
        token_file = api.token_file or self.config.journal.with_suffix(".token")
        settings = ApiSettings(load_or_create_token(token_file), api.host, api.port)
        return Services(self.board, self.telemetry.registry, settings, self, self.clock, self._link)

    async def _close(self, server: StatusServer) -> None:
        """Stop listening first, then let go of everything that was opened; limits in force stay, and are told."""
        await server.close()
        if self._link is not None:
            await self._link.close()
        if self._parts is not None:
            held = {str(key): item.value for key, item in self._parts.journal.held().items()}
            await self._parts.close()
            log.info("stopped holding=%s", held)
