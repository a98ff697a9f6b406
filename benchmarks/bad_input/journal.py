"""A journal that cannot be written: nothing is sent while that lasts, and nothing is lost by it."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from actuators.model import Status
from benchmarks.bad_input.lab import Lab
from benchmarks.bad_input.row import (
    Promises,
    Row,
    applied,
    explains,
    failed_cycles,
    of_the_agent,
    outcomes,
    raised,
    stable,
)
from inferostat.journal import Journal, JournalError
from inferostat.loop import CycleReport

GROUP = "journal"
WARM_UP, FAULT, RECOVERY = 6, 6, 40

Spoil = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def no_more_writes(path: Path) -> Iterator[None]:
    """The system refuses every write past the first byte of a file, as a failing or full disk does."""
    del path
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds SQLite's write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


@contextmanager
def moved_away(path: Path) -> Iterator[None]:
    """The file is gone from its place, and comes back."""
    aside = path.with_name("moved-away.sqlite")
    path.rename(aside)
    try:
        yield
    finally:
        aside.rename(path)


async def spoiled(lab: Lab, name: str, spoil: Spoil, cycles: int = FAULT) -> Row:
    """An engine goes down while the journal takes no writes; its weight is taken away once it does again."""
    engine = lab.engines[-1]
    async with lab.agent() as agent:
        before = await agent.cycles(WARM_UP)
        levers = await lab.levers()
        await engine.stop()
        try:
            with spoil(agent.parts.journal.path):
                during = await agent.cycles(cycles)
            promises = Promises()
            promises.hold(await lab.levers() == levers, "something was moved at the gateway")
            after: list[CycleReport] = []
            while len(after) < RECOVERY and not applied(after):
                after += await agent.cycles(1)
        finally:
            await engine.start()
        refused = [detail for detail in outcomes(during, Status.FAILED) if detail.startswith("not sent")]
        promises.hold(bool(refused), "no action was wanted, so nothing was proven")
        promises.hold(all(map(explains, refused)), "an outcome does not say expected, found and what to do")
        promises.hold(not applied(during), f"actions were taken: {applied(during)}")
        promises.hold(not failed_cycles([*during, *after]), "a cycle failed")
        promises.hold(len(applied(after)) == 1, f"afterwards: {applied(after)}")
        records = [record for record in agent.parts.journal.actions(100) if record.outcome is not None]
        promises.hold(len(records) >= 1, "the action is not in the journal")
        row = Row(
            GROUP,
            name,
            stable(refused[0]) if refused else "",
            of_the_agent(raised(during, before, of_endpoints=False)),
            applied(during),
            f"{len(during)} of {len(during)} cycles ran; nothing was sent, Envoy is as it was",
            f"sent once it can be written: {'; '.join(applied(after))}",
            tuple(promises.broken),
        )
    await lab.reset()
    return row


async def damaged(lab: Lab) -> Row:
    """The file is no database any more when the agent starts."""
    document = lab.document()
    path = Path(document["journal"])
    path.write_bytes(b"this is no database" * 300)
    async with lab.agent(document) as agent:
        reports = await agent.cycles(3)
        said = agent.parts.journal.recovered or ""
        aside = [one for one in path.parent.glob(f"{path.name}.damaged-*") if one.stat().st_size > 4096]
        promises = Promises()
        promises.hold(explains(said), "it does not say expected, found and what to do")
        promises.hold(len(aside) == 1, "the damaged file was not kept")
        promises.hold(not failed_cycles(reports) and not applied(reports), "cycles failed or acted")
        return Row(
            GROUP,
            "damaged at the start",
            stable(said),
            of_the_agent(raised(reports, (), of_endpoints=False)),
            applied(reports),
            "the damaged file was moved aside, not overwritten",
            "goes on with a new one",
            tuple(promises.broken),
        )


async def two_agents(lab: Lab) -> Row:
    """A second agent is given the journal of a running one."""
    async with lab.agent() as agent:
        reports = await agent.cycles(2)
        said = ""
        try:
            Journal.start(agent.parts.journal.path, lab.clock()).close()
        except JournalError as error:
            said = str(error)
        reports += await agent.cycles(2)
        promises = Promises()
        promises.hold(explains(said), "the second agent was let in")
        promises.hold(not failed_cycles(reports), "the first agent was disturbed")
        return Row(
            GROUP,
            "used by another agent",
            stable(said),
            (),
            applied(reports),
            f"the first agent ran {len(reports)} of {len(reports)} cycles",
            "the second does not start",
            tuple(promises.broken),
        )


async def rows(lab: Lab) -> AsyncIterator[Row]:
    yield await spoiled(lab, "disk takes no writes", no_more_writes)
    yield await spoiled(lab, "file moved away", moved_away)
    yield await spoiled(lab, "locked by another program", locked, cycles=5)
    yield await damaged(lab)
    yield await two_agents(lab)
