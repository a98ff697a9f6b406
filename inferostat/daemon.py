"""The daemon: schedule, reload, pause, API and an orderly end. Signals only set flags."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actuators.model import ActuatorError, Status
from inferostat import VERSION, journal
from inferostat.api.auth import load_or_create_token
from inferostat.api.controls import ControlError
from inferostat.api.server import StatusServer
from inferostat.api.services import ApiSettings, Services
from inferostat.api.state import StatusBoard
from inferostat.api.view import ActionRecord, CycleView, Pause
from inferostat.assembly import Parts, assemble
from inferostat.config import Config, ConfigError, load
from inferostat.embedded import FleetLink
from inferostat.journal import Journal, JournalError
from inferostat.journal import Pause as JournalPause
from inferostat.loop import CycleReport
from inferostat.planner import Mode, Verdict
from inferostat.present import CycleFacts
from inferostat.telemetry import Telemetry
from inferostat.tracing import TracingError

log = logging.getLogger("inferostat")

# Together below ten seconds: a cycle under way may end by itself, then everything is closed.
CYCLE_GRACE_S = 4.0
SHUTDOWN_S = 5.0
SHOWN_ACTIONS = 100
# What a running agent cannot change; a reload that tries is refused as a whole rather than half obeyed.
FIXED = ("journal", "api", "retention")


class ListenError(Exception):
    """The page's address cannot be had: expected, found, what to do."""


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
        self._warned: tuple[str, ...] = ()
        self._planned = 0.0

    async def run(self, announce: Callable[[str], None] = lambda url: None) -> None:
        """Serve and cycle until `flags.stop`; `announce` is told the page's address once it answers."""
        self._install_signals()
        self._parts = assemble(self.config, clock=self.clock)
        if self._parts.journal.recovered is not None:
            log.error("journal_recovered %s", self._parts.journal.recovered)
        self.telemetry.configuration_loaded(True, self.clock())
        self.board.configured(str(self.config.mode))
        if self._embedded is not None:
            self._link = FleetLink(self._embedded.admin_url, self._embedded.clients_url)
        server = StatusServer(self._services())
        try:
            announce(await self._listen(server))
            await self._recover(self._parts)
            await self._cycle_until_stopped()
        finally:
            try:
                await asyncio.wait_for(self._close(server), SHUTDOWN_S)
            except TimeoutError:
                log.error("shutdown_incomplete not everything was closed within %g s", SHUTDOWN_S)

    async def _listen(self, server: StatusServer) -> str:
        try:
            return await server.start()
        except OSError as error:
            where = f"{self.config.api.host}:{self.config.api.port}"
            raise ListenError(
                f"api: expected to listen on {where}, found {_found(error)};"
                " stop what listens there or give another api.port"
            ) from error

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
            self._check_fixed(config)
            parts = assemble(config, self._parts, self.clock)
        except (ConfigError, ActuatorError, JournalError, TracingError) as error:
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

    def _check_fixed(self, config: Config) -> None:
        changed = [name for name in FIXED if getattr(config, name) != getattr(self.config, name)]
        if changed:
            raise ConfigError(
                str(self.path),
                [
                    f"{name}: expected what the agent was started with, found another value; restart it"
                    for name in changed
                ],
            )

    # The loop

    async def _cycle_until_stopped(self) -> None:
        """The next cycle is due one period after the last was due, so that delays do not add up."""
        self._planned = self.clock()
        while not self.flags.stop.is_set():
            if self.flags.reload:
                self.flags.reload = False
                await self._reload_on_signal()
            try:
                await self._cycle_or_stop()
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

    async def _cycle_or_stop(self) -> None:
        """One cycle, given up when the agent is to stop and it does not end soon.

        An action under way is then open in the journal, and settled against reality at the next start.
        """
        cycle = asyncio.create_task(self._one_cycle())
        stopping = asyncio.create_task(self.flags.stop.wait())
        try:
            await asyncio.wait({cycle, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({cycle}, timeout=CYCLE_GRACE_S)
            if cycle.done():
                return await cycle
            log.warning("cycle_given_up it did not end within %g s of being told to stop", CYCLE_GRACE_S)
        finally:
            for task in (cycle, stopping):
                task.cancel()
            await asyncio.gather(cycle, stopping, return_exceptions=True)

    async def _one_cycle(self) -> None:
        parts = self._parts
        assert parts is not None
        now = self.clock()
        paused = _paused(parts.journal, now)
        report = await parts.loop.run_cycle(now, paused is not None)
        self._log(report)
        overran = report.phases["total"] > self.config.interval
        self._count(report, overran)
        self.telemetry.paused(paused is not None)
        self.board.pause(None if paused is None else Pause(paused.at, paused.reason), now)
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
        self._log_target_lists()

    def _log_target_lists(self) -> None:
        """What is wrong with where the targets come from, once for each change."""
        assert self._parts is not None
        warnings = self._parts.source.warnings
        for warning in warnings:
            if warning not in self._warned:
                log.warning("target_list %s", warning)
        self._warned = warnings

    async def _recover(self, parts: Parts) -> None:
        """Settle what an earlier run left open, and show what it did."""
        for outcome in await parts.loop.recover(self.clock()):
            log.info("settled %s %s %s", outcome.status, outcome.action_id, outcome.detail)
        self.board.remember(_record(item) for item in reversed(parts.journal.actions(SHOWN_ACTIONS)))

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
        """Stop listening first, then let go of all that was opened; limits in force stay, and are told."""
        await server.close()
        if self._link is not None:
            await self._link.close()
        if self._parts is not None:
            held = {str(key): item.value for key, item in self._parts.journal.held().items()}
            await self._parts.close()
            log.info("stopped holding=%s", held)


def _found(error: OSError) -> str:
    """What the system says, without the call that asyncio names in its place."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _paused(journal: Journal, now: float) -> JournalPause | None:
    """The pause in the journal; one that cannot be read may say pause, so nothing is moved."""
    try:
        return journal.paused()
    except JournalError as error:
        return JournalPause(now, "agent", str(error))


def _record(item: journal.ActionRecord) -> ActionRecord:
    """A journal's record as the page shows it. Advice is an action whose outcome says so."""
    advised = item.outcome is not None and item.outcome.status is Status.ADVISED
    seen = item.verification
    verdict = None if seen is None else Verdict(seen.action_id, seen.state, seen.detail)
    return ActionRecord(item.action, str(Mode.ADVISE if advised else Mode.ACT), item.outcome, verdict)
