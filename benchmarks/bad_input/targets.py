"""Targets that misbehave: one engine's metrics are spoiled for a while, the other engines and Envoy are not."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from benchmarks.bad_input.engine import OUTPUT_TOKENS, Reply, answer, dripping, endless, silent
from benchmarks.bad_input.lab import LARGEST_BODY_BYTES, POOL, Agent, Lab
from benchmarks.bad_input.row import (
    Promises,
    Row,
    applied,
    explains,
    failed_cycles,
    findings_of,
    raised,
    stable,
)
from collector.model import Cell, Level, SignalState, TargetStatus
from inferostat.loop import CycleReport

GROUP = "targets"
WARM_UP, FAULT, RECOVERY = 6, 8, 20

SGLANG = b'sglang:num_running_reqs{model_name="m"} 3\nsglang:num_queue_reqs{model_name="m"} 0\n'
DCGM = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100"} 50\n'


@dataclass(frozen=True)
class TargetCase:
    """A fault of the first engine's metrics, by the answer it gives to scrapes."""

    name: str
    reply: Callable[[bytes], Reply]


CASES = (
    TargetCase("accepts and never answers", lambda body: silent),
    TargetCase("slow: a byte at a time", lambda body: dripping(body, 0.02)),
    TargetCase("endless body", endless),
    TargetCase("truncated body", lambda body: answer(body[: len(body) // 2], length=len(body))),
    TargetCase("not metrics: an HTML page", lambda body: answer(b"<html><body>Welcome</body></html>")),
    TargetCase("not metrics: JSON", lambda body: answer(b'{"status": "ok"}')),
    TargetCase("oversized body", lambda body: answer(body * (1 + LARGEST_BODY_BYTES // len(body)))),
    TargetCase("401: the token is not accepted", lambda body: answer(b"", "401 Unauthorized")),
    TargetCase("500", lambda body: answer(b"", "500 Internal Server Error")),
    TargetCase("changes engine: metrics of an unknown one", lambda body: answer(SGLANG)),
    TargetCase("changes engine: a GPU exporter answers", lambda body: answer(DCGM)),
)


async def answering_badly(lab: Lab, case: TargetCase) -> Row:
    """The engine's metrics answer in the case's way."""
    engine = lab.engines[0]

    @asynccontextmanager
    async def spoil() -> AsyncIterator[None]:
        engine.fault = case.reply(engine.script.body())
        try:
            yield
        finally:
            engine.fault = None

    return await _spoiled(lab, case.name, spoil)


async def refused(lab: Lab) -> Row:
    """The metrics port is closed while the engine goes on serving through the gateway."""
    metrics = lab.engines[0].metrics

    @asynccontextmanager
    async def spoil() -> AsyncIterator[None]:
        await metrics.stop()
        try:
            yield
        finally:
            await metrics.start()

    return await _spoiled(lab, "unreachable: refused, but it serves", spoil)


async def _spoiled(lab: Lab, name: str, spoil: Callable[[], AbstractAsyncContextManager[None]]) -> Row:
    async with lab.agent() as agent:
        before = await agent.cycles(WARM_UP)
        levers = await lab.levers()
        async with spoil():
            during = await agent.cycles(FAULT)
        after = await _recovered(agent, lab.engines[0].name)
        promises = _promises(lab, [*during, *after])
        promises.hold(await lab.levers() == levers, "something was moved at the gateway")
        down = [_status(report, lab.engines[0].name) for report in during]
        errors = [status.error or "" for status in down if not status.up]
        promises.hold(len(errors) == FAULT, f"only {len(errors)} of {FAULT} cycles show the error")
        promises.hold(all(map(explains, errors)), "an error does not say expected, found and what to do")
        promises.hold(_status(after[-1], lab.engines[0].name).up, "it is not read again afterwards")
        return Row(
            GROUP,
            name,
            stable(errors[0] if errors else ""),
            raised(during, before),
            applied([*during, *after]),
            _kept(lab, during),
            f"read again after {_cycles(len(after))}; {_gone(during, before, after)}",
            tuple(promises.broken),
        )


async def never_there(lab: Lab) -> Row:
    """A configured address whose network drops every packet: it never answered since the start."""
    with _dropping_port() as port:
        document = lab.document()
        extra = {"url": f"http://127.0.0.1:{port}", "name": "ghost"}
        targets = [*document["pools"][POOL]["targets"], extra]
        document["pools"][POOL]["targets"] = targets
        levers = await lab.levers()
        async with lab.agent(document) as agent:
            reports = await agent.cycles(WARM_UP)
            promises = _promises(lab, reports, lost=0)
            promises.hold(await lab.levers() == levers, "something was moved at the gateway")
            status = _status(reports[-1], "ghost")
            promises.hold(explains(status.error or ""), "the error does not say expected, found and what to do")
            cell = reports[-1].frame.endpoints.cell("ghost", "requests_running")
            return Row(
                GROUP,
                "unreachable since the start: packets are dropped",
                stable(status.error or ""),
                raised(reports, ()),
                applied(reports),
                f"its load is {cell.state.label}, not zero; {_neighbours(lab, reports, lost=0)}",
                "",
                tuple(promises.broken),
            )


async def restarts(lab: Lab, says_so: bool) -> Row:
    """The engine's process begins anew, its counters with it; some engines do not export their start."""
    script = lab.engines[0].script
    lab.engines[0].script = replace(script, started=script.started if says_so else None)
    async with lab.agent() as agent:
        before = await agent.cycles(WARM_UP + 4)
        levers = await lab.levers()
        fresh = lab.engines[0].script
        fresh.finished = 0.0
        if says_so:
            fresh.started = lab.clock()
        during, rates = [], []
        for _ in range(FAULT):
            during += await agent.cycles(1)
            rates.append(_token_rate(agent, lab.engines[0].name))
        promises = _promises(lab, during, lost=0)
        promises.hold(await lab.levers() == levers, "something was moved at the gateway")
        said = [w for report in during for w in _status(report, lab.engines[0].name).warnings]
        known = [rate.known for rate in rates if rate.known is not None]
        usual = fresh.finish_rate * OUTPUT_TOKENS
        promises.hold(all(0 <= rate < 1.2 * usual for rate in known), f"its token rate has a spike: {known}")
        promises.hold(rates[-1].known is not None, "its token rate stays unknown")
        reason = f"its token rate is known in {len(known)} of {_cycles(FAULT)}, never negative and never a spike"
        row = Row(
            GROUP,
            "restarts" if says_so else "restarts and does not export its start time",
            stable(said[0]) if said else "(nothing to tell it by)",
            raised(during, before),
            applied(during),
            f"{reason}; {_neighbours(lab, during, lost=0)}",
            "",
            tuple(promises.broken),
        )
    lab.engines[0].script.started = script.started
    return row


async def rows(lab: Lab) -> AsyncIterator[Row]:
    yield await refused(lab)
    yield await never_there(lab)
    for case in CASES:
        yield await answering_badly(lab, case)
    yield await restarts(lab, says_so=True)
    yield await restarts(lab, says_so=False)


def _token_rate(agent: Agent, name: str) -> Cell:
    return agent.parts.loop.history.rate(Level.ENDPOINT, "generation_tokens", 3.5).cell(name)


async def _recovered(agent: Agent, name: str) -> list[CycleReport]:
    """Cycles until the target is read again; back-off may put it off."""
    reports: list[CycleReport] = []
    while len(reports) < RECOVERY:
        reports += await agent.cycles(1)
        if _status(reports[-1], name).up:
            break
    return reports + await agent.cycles(2)


def _promises(lab: Lab, reports: list[CycleReport], lost: int = 1) -> Promises:
    """What holds in every case: the loop goes on, the others are read, nothing is moved."""
    promises = Promises()
    promises.hold(not failed_cycles(reports), f"a cycle failed: {failed_cycles(reports)}")
    promises.hold(not applied(reports), f"actions were taken: {applied(reports)}")
    for name in [engine.name for engine in lab.engines[lost:]] + ["envoy"]:
        promises.hold(all(_status(report, name).up for report in reports), f"{name} was disturbed")
    return promises


def _kept(lab: Lab, during: list[CycleReport]) -> str:
    name = lab.engines[0].name
    states = [report.frame.endpoints.cell(name, "requests_running").state for report in during]
    used = sum(1 for state in states if state is SignalState.KNOWN)
    last = states[-1].label
    return f"last values used for {_cycles(used)}, then {last}; {_neighbours(lab, during, lost=1)}"


def _neighbours(lab: Lab, reports: list[CycleReport], lost: int) -> str:
    names = [engine.name for engine in lab.engines[lost:]] + ["envoy"]
    good = min(sum(1 for report in reports if _status(report, name).up) for name in names)
    return f"{len(names)} other targets read in {good} of {len(reports)} cycles"


def _gone(during: list[CycleReport], before: list[CycleReport], after: list[CycleReport]) -> str:
    still = set(findings_of(after[-1:])) & (set(findings_of(during)) - set(findings_of(before)))
    return f"still found: {', '.join(sorted(still))}" if still else "the findings end"


def _status(report: CycleReport, name: str) -> TargetStatus:
    return next(status for status in report.frame.targets if status.name == name)


def _cycles(count: int) -> str:
    return f"{count} cycle{'' if count == 1 else 's'}"


@contextmanager
def _dropping_port() -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops what else arrives, as a firewall does."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = int(listener.getsockname()[1])
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
