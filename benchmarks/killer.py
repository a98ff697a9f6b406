"""Kills a running agent again and again, and compares its journal with what Envoy and the fleet say."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from actuators.model import Lever, LeverKey, LeverValue, Status
from actuators.values import same
from benchmarks.accounts import Account, at_envoy, at_fleet, limits_in_force
from benchmarks.agent import Agent, AgentStarter
from benchmarks.forwarder import CountingForwarder
from fleetsim.children import terminate
from fleetsim.conductor import Embedded
from fleetsim.file_sd import POOL
from inferostat.journal import ActionRecord, JournalReader

AT_RANDOM = "at random"
# What a kill waits for: a write at one of the two systems, and whether the system still gets it.
MOMENTS = (
    ("on its way to the fleet", "fleet", False),
    ("fleet has it, no answer", "fleet", True),
    ("Envoy has it, no answer", "envoy", True),
    ("on its way to Envoy", "envoy", False),
    (AT_RANDOM, None, False),
)
WRITE_WITHIN_S = 15.0  # then the kill is at random
SETTLED_WITHIN_S = 30.0
STOP_GRACE_S = 10.0
POLL_S = 0.02
ACTIONS = 1_000_000


@dataclass(frozen=True)
class Kill:
    """One kill. `demanded`: the status that the truth demanded of each action left open; `found`: what the
    restarted agent wrote. `differing`: levers with nothing open whose value in force the journal did not have.
    """

    moment: str
    lived_s: float
    demanded: Mapping[str, Status]
    found: Mapping[str, Status]
    differing: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.demanded == self.found and not self.differing


@dataclass(frozen=True)
class Result:
    """All kills, the books at the end, and the levers that then differed from the journal."""

    kills: tuple[Kill, ...]
    envoy: Account
    fleet: Account
    differing: tuple[str, ...]

    @property
    def right(self) -> bool:
        clean = self.envoy.clean and self.fleet.clean and not self.differing
        return clean and all(kill.right for kill in self.kills)


@dataclass(frozen=True)
class Books:
    """The journal at one moment."""

    records: Mapping[str, ActionRecord]
    held: Mapping[LeverKey, LeverValue]

    @classmethod
    def read(cls, path: Path) -> Books:
        if not path.exists():
            return cls({}, {})
        reader = JournalReader.open(path)
        try:
            records = {record.action.id: record for record in reader.actions(ACTIONS)}
            return cls(records, {key: item.value for key, item in reader.held().items()})
        finally:
            reader.close()

    def open(self) -> dict[str, ActionRecord]:
        return {name: record for name, record in self.records.items() if record.outcome is None}


class Killer:
    """`forwarders`: the two systems' own, "envoy" and "fleet". `seed` and `spread_s`: the random moments."""

    def __init__(
        self,
        starter: AgentStarter,
        journal: Path,
        running: Embedded,
        session: aiohttp.ClientSession,
        forwarders: Mapping[str, CountingForwarder],
        seed: int,
        spread_s: float,
    ) -> None:
        self._starter = starter
        self._journal = journal
        self._fleet = running.fleet
        self._session = session
        self._forwarders = forwarders
        self._random = random.Random(seed)
        self._spread_s = spread_s

    async def run(self, kills: int, told: Callable[[Kill], None] = lambda kill: None) -> Result:
        """Kill so many times, then let a last agent settle and end in order, and close the books."""
        done: list[Kill] = []
        agent = await self._starter.start()
        try:
            for number in range(kills):
                moment, lived_s = await self._kill(agent, number)
                left, truth = Books.read(self._journal), await self._in_force()
                agent = await self._starter.start()
                done.append(await self._judge(moment, lived_s, left, truth))
                told(done[-1])
        finally:
            await terminate(agent.process, STOP_GRACE_S)
        books, truth = Books.read(self._journal), await self._in_force()
        calls = (await self._get(f"{self._fleet['admin_url']}/admin/log"))["calls"]
        records, cluster = tuple(books.records.values()), self._fleet["gateway"]["cluster"]
        return Result(
            tuple(done),
            at_envoy(records, self._forwarders["envoy"].written, cluster),
            at_fleet(records, calls, self._forwarders["fleet"].written),
            self._differing(books, truth),
        )

    async def _kill(self, agent: Agent, number: int) -> tuple[str, float]:
        """Kill at the round's moment; the moment as it turned out, and how long the agent was up."""
        started = time.monotonic()
        moment, system, gets_it = MOMENTS[number % len(MOMENTS)]
        if system is not None:
            forwarder = self._forwarders[system]
            forwarder.after, forwarder.before = (agent.process.kill, None) if gets_it else (None, agent.process.kill)
            await _until(lambda: agent.process.poll() is not None, WRITE_WITHIN_S)
            forwarder.after = forwarder.before = None
        if agent.process.poll() is None:
            moment, before = AT_RANDOM, self._written()
            await _until(lambda: self._written() > before, WRITE_WITHIN_S)
            await asyncio.sleep(self._random.uniform(0.0, self._spread_s))
            agent.process.kill()
        await asyncio.to_thread(agent.process.wait)
        lived_s = time.monotonic() - started
        # what the dead had sent still arrives
        await _until(lambda: not any(f.in_flight for f in self._forwarders.values()), SETTLED_WITHIN_S)
        return moment, lived_s

    async def _judge(self, moment: str, lived_s: float, left: Books, truth: Mapping[Lever, LeverValue]) -> Kill:
        """What the agent that came up wrote of the actions left open, beside what was true."""
        found: dict[str, Status] = {}

        def settled() -> bool:
            records = Books.read(self._journal).records
            for name in left.open():
                outcome = records[name].outcome
                if outcome is not None:
                    found[name] = outcome.status
            return found.keys() == left.open().keys()

        await _until(settled, SETTLED_WITHIN_S)
        demanded: dict[str, Status] = {}
        for name, record in left.open().items():
            lever = record.action.key.lever
            there = same(lever, truth[lever], record.action.after)
            demanded[name] = Status.APPLIED if there else Status.FAILED
        return Kill(moment, lived_s, demanded, found, self._differing(left, truth))

    def _differing(self, books: Books, truth: Mapping[Lever, LeverValue]) -> tuple[str, ...]:
        """Levers with nothing open that are neither where the journal holds them nor, not held, at their first."""
        busy = {record.action.key.lever for record in books.open().values()}
        first: dict[Lever, LeverValue] = {Lever.SCALE: float(self._fleet["engines"])}
        found: list[str] = []
        for lever, value in truth.items():
            expected = books.held.get(LeverKey(lever, POOL, POOL), first.get(lever))
            if lever not in busy and not same(lever, expected, value):
                found.append(f"{lever}: journal {expected}, in force {value}")
        return tuple(found)

    async def _in_force(self) -> dict[Lever, LeverValue]:
        """The truth, asked of Envoy and fleet themselves and not through the forwarders."""
        gateway = self._fleet["gateway"]
        runtime = await self._get(f"{gateway['admin_url']}/runtime?format=json")
        fleet = await self._get(f"{self._fleet['admin_url']}/admin/fleet")
        return {**limits_in_force(runtime, gateway["cluster"]), Lever.SCALE: float(fleet["target"])}

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._session.get(url) as answer:
            answer.raise_for_status()
            document: dict[str, Any] = await answer.json(content_type=None)
            return document

    def _written(self) -> int:
        return sum(len(forwarder.written) for forwarder in self._forwarders.values())


async def _until(there: Callable[[], bool], within_s: float) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while not there():
        if loop.time() > until:
            return False
        await asyncio.sleep(POLL_S)
    return True
