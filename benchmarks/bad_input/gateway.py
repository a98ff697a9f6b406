"""A gateway that is gone, restarts, fails or ignores orders, while there is a reason to act on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any

from actuators.model import Status
from benchmarks.bad_input.engine import Script
from benchmarks.bad_input.lab import Agent, Lab
from benchmarks.bad_input.proxy import Manner
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
from inferostat.loop import CycleReport

GROUP = "Envoy"
WARM_UP, FAULT, RECOVERY = 6, 8, 25
STORM = "retry-storm-incipient"
LIMITS = ("breaker", "admission", "retry_budget")


def begin_overload(lab: Lab) -> None:
    """Queues grow faster than the clients' patience allows: a storm is near and levers are wanted."""
    for engine in lab.engines:
        engine.script.running, engine.script.queue_growth = 32.0, 3.0


def end_overload(lab: Lab) -> None:
    for engine in lab.engines:
        engine.script = Script(finished=engine.script.finished)


async def gone(lab: Lab) -> Row:
    """Envoy is killed just before its levers are wanted, and comes back."""
    document = _without_proxy(lab)
    async with lab.agent(document) as agent:
        before = await agent.cycles(WARM_UP)
        await lab.gateway.stop()
        begin_overload(lab)
        during = await agent.cycles(FAULT)
        await lab.gateway.restart()
        return await _row(lab, agent, "gone", before, during)


async def failing(lab: Lab, manner: Manner, name: str) -> Row:
    """The admin interface answers, but not as it should, while its levers are wanted."""
    async with lab.agent() as agent:
        before = await agent.cycles(WARM_UP)
        lab.proxy.manner = manner
        try:
            begin_overload(lab)
            during = await agent.cycles(FAULT if manner is Manner.ERROR else 4)
        finally:
            lab.proxy.manner = Manner.PASS
        return await _row(lab, agent, name, before, during)


async def restarted(lab: Lab) -> Row:
    """Envoy restarts while limits are in force at it: its runtime overrides do not outlive the process."""
    document = _without_proxy(lab)
    await lab.gateway_up_for(3)
    async with lab.agent(document) as agent:
        begin_overload(lab)
        before = await agent.until(STORM, 12) + await agent.cycles(5)
        held = _held(agent)
        promises = Promises()
        promises.hold(bool(held) and await _at_envoy(lab, held), "no limit was in force before the restart")
        await lab.gateway.restart()
        during: list[CycleReport] = []
        while len(during) < RECOVERY:
            during += await agent.cycles(1)
            if await _at_envoy(lab, held):
                break
        end_overload(lab)
        promises.hold(await _at_envoy(lab, held), f"{held} is not in force again")
        promises.hold(_held(agent).keys() == held.keys(), "what is held was forgotten")
        promises.hold(not failed_cycles(during), f"a cycle failed: {failed_cycles(during)}")
        again = applied(during)
        promises.hold(len(again) == len(set(again)), f"set more than once: {again}")
        reasons = [reading.reason for report in during for reading in report.readings if reading.reason]
        row = Row(
            GROUP,
            "restarted, with limits in force",
            stable(reasons[0] if reasons else ""),
            of_the_agent(raised(during, before, of_endpoints=False)),
            (),
            f"the journal still held {', '.join(sorted(held))}",
            f"each set again, once ({len(again)} orders)",
            tuple(promises.broken),
        )
    await _calm(lab)
    return row


async def ignoring(lab: Lab) -> Row:
    """Every order is answered with 200 and forgotten."""
    document = lab.document()
    document["backends"]["edge"]["readback_s"] = 0.3
    async with lab.agent(document) as agent:
        before = await agent.cycles(WARM_UP)
        lab.proxy.manner, writes = Manner.SWALLOW, lab.proxy.writes
        try:
            begin_overload(lab)
            during = await agent.until(STORM, 10) + await agent.cycles(12)
        finally:
            lab.proxy.manner = Manner.PASS
        sent = lab.proxy.writes - writes
        ignored = outcomes(during, Status.IGNORED)
        promises = Promises()
        promises.hold(0 < len(ignored) <= 5, f"{len(ignored)} orders in {len(during)} cycles")
        told = sum(len(report.outcomes) for report in during)
        promises.hold(sent == told, f"{sent} orders were sent and {told} journaled")
        return await _row(lab, agent, "accepts and ignores", before, during, promises, ignored)


async def unwatched_file(lab: Lab) -> Row:
    """`eds_path` names a copy of the file: weights are written and Envoy never looks."""
    document = lab.document()
    copy = lab.folder / "copy-of-eds.json"
    shutil.copy(lab.gateway.endpoints.path, copy)
    document["backends"]["edge"] |= {"eds_path": str(copy), "readback_s": 0.3}
    content = copy.read_bytes()

    def untouched() -> bool:
        return bool(json.loads(copy.read_bytes()) == json.loads(content))

    return await _weights(lab, document, "accepts and ignores: another EDS file", Status.IGNORED, untouched)


async def broken_file(lab: Lab) -> Row:
    """The EDS file the agent is to edit is not JSON."""
    document = lab.document()
    broken = lab.folder / "broken-eds.json"
    broken.write_text("{not json")
    document["backends"]["edge"]["eds_path"] = str(broken)
    return await _weights(
        lab, document, "EDS file not readable", Status.FAILED, lambda: broken.read_text() == "{not json"
    )


async def _weights(lab: Lab, document: dict[str, Any], name: str, status: Status, untouched: Callable[[], bool]) -> Row:
    """An engine goes down for good, so that its weight has to be taken away."""
    engine = lab.engines[-1]
    async with lab.agent(document) as agent:
        before = await agent.cycles(WARM_UP)
        await engine.stop()
        try:
            down = await agent.until("engine-down", 10)
            during = down + await agent.cycles(8)
        finally:
            await engine.start()
        details = outcomes(during, status)
        promises = Promises()
        promises.hold(bool(details), f"no order ended as {status}")
        promises.hold(len(details) <= 5, f"sent {len(details)} times in {len(during)} cycles")
        promises.hold(untouched(), "the file was left changed")
        promises.hold(all(map(explains, details)), "an outcome does not say expected, found and what to do")
        promises.hold(not failed_cycles(during), f"a cycle failed: {failed_cycles(during)}")
        promises.hold(not applied(during), f"taken as done: {applied(during)}")
        return Row(
            GROUP,
            name,
            stable(details[0]) if details else "",
            of_the_agent(raised(during, before, of_endpoints=False)),
            applied(during),
            f"the file is as it was; each order is in the journal as {status}, the next one waits",
            "",
            tuple(promises.broken),
        )


async def rows(lab: Lab) -> AsyncIterator[Row]:
    yield await gone(lab)
    yield await restarted(lab)
    yield await failing(lab, Manner.ERROR, "answers 500")
    yield await failing(lab, Manner.HANG, "accepts and never answers")
    yield await ignoring(lab)
    yield await unwatched_file(lab)
    yield await broken_file(lab)


async def _row(
    lab: Lab,
    agent: Agent,
    name: str,
    before: list[CycleReport],
    during: list[CycleReport],
    promises: Promises | None = None,
    said: tuple[str, ...] = (),
) -> Row:
    """The row of a fault in which levers were wanted and none could be moved; afterwards they are."""
    promises = promises or Promises()
    if not said:
        said = tuple(reading.reason for report in during for reading in report.readings if not reading.known)
        promises.hold(bool(said), "the levers' values seemed known")
    promises.hold(all(map(explains, said)), "an error does not say expected, found and what to do")
    promises.hold(not applied(during), f"taken as done: {applied(during)}")
    promises.hold(not failed_cycles(during), f"a cycle failed: {failed_cycles(during)}")
    kept = f"{len(during)} of {len(during)} cycles ran, engines read in each"
    promises.hold(
        all(status.up for report in during for status in report.frame.targets if status.name != "envoy"),
        "an engine was not read",
    )
    after = await agent.until("never", 1)
    while len(after) < RECOVERY and not applied(after):
        after += await agent.cycles(1)
    promises.hold(bool(applied(after)), "nothing is moved once it is back")
    promises.hold(await _at_envoy(lab, _held(agent)), "Envoy does not have what the journal holds")
    row = Row(
        GROUP,
        name,
        stable(said[0]) if said else "",
        of_the_agent(raised(during, before, of_endpoints=False)),
        applied(during),
        kept,
        f"{applied(after)[0] if applied(after) else 'nothing'}, once it can be",
        tuple(promises.broken),
    )
    await _calm(lab)
    return row


def _held(agent: Agent) -> dict[str, float]:
    """Limits the journal holds, by lever."""
    return {
        str(key.lever): item.value
        for key, item in agent.parts.journal.held().items()
        if key.lever in LIMITS and item.value is not None
    }


async def _at_envoy(lab: Lab, held: dict[str, float]) -> bool:
    """Whether Envoy has every limit, as it spells it."""
    spelled = {
        "circuit_breakers.llm.default.max_requests": held.get("breaker"),
        "inferostat.llm.shed_percent": _shed(held.get("admission")),
        "inferostat.llm.shed_retries_percent": _shed(held.get("retry_budget")),
    }
    runtime = (await lab.levers())["runtime"]
    return all(runtime.get(key) == f"{value:g}" for key, value in spelled.items() if value is not None)


def _shed(let_in: float | None) -> float | None:
    return None if let_in is None else 100.0 - let_in


async def _calm(lab: Lab) -> None:
    """Queues and limits as at the start, for the next case."""
    end_overload(lab)
    await lab.reset()


def _without_proxy(lab: Lab) -> dict[str, Any]:
    document = lab.document()
    document["backends"]["edge"]["admin_url"] = lab.gateway.admin_url
    for target in document["pools"]["default"]["targets"]:
        if target.get("role") == "gateway":
            target["url"] = lab.gateway.admin_url
    return document
