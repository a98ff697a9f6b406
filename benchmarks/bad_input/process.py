"""The agent as the user starts it: `inferostat run -c FILE` with a configuration or a machine that is wrong."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from benchmarks.bad_input.engine import silent
from benchmarks.bad_input.lab import Lab
from benchmarks.bad_input.row import Promises, Row, explains, stable
from inferostat.cli.main import app

GROUP = "configuration and process"
START_S, END_S = 60.0, 10.0
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (?:INFO|WARNING|ERROR) ")
RELOADED = "inferostat_config_last_reload_successful"
LAST_CYCLE = "inferostat_last_cycle_timestamp_seconds"

TEN_MISTAKES = """
interval: 5 parsecs
mode: atc
pools:
  a:
    targets:
      - url: engine-0:8000
      - url: http://engine-1:8000
        gpus: -1
      - url: http://envoy:9901
        role: gateway
    levers:
      breaker: {backend: egde, minimum: 90, maximum: 30}
  b: {}
backends:
  edge: {kind: envoy, admin_ur: "http://127.0.0.1:9901", clusters: {a: llm}}
api: {prot: 9464}
"""
# where the mistakes are; the ninth is told twice, as what is missing and as what is not known
PATHS = (
    "interval",
    "mode",
    "pools.a.targets[0].url",
    "pools.a.targets[1].gpus",
    "pools.a.targets[2].cluster",
    "pools.a.levers.breaker.backend",
    "pools.a.levers.breaker.minimum",
    "pools.b",
    "backends.edge.admin_ur",
    "api.prot",
)


@dataclass
class Running:
    """An agent process with its page's address and its log."""

    process: asyncio.subprocess.Process
    lab: Lab
    url: str
    log: Path

    async def metric(self, name: str) -> float | None:
        async with self.lab.session.get(f"{self.url}/metrics") as response:
            text = await response.text()
        return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)), None)

    async def reaches(self, name: str, wanted: Callable[[float], bool], within_s: float = 30.0) -> bool:
        """Whether a metric gets there; asks again until then."""
        until = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < until:
            value = await self.metric(name)
            if value is not None and wanted(value):
                return True
            await asyncio.sleep(0.1)
        return False

    async def end(self) -> tuple[int | None, float]:
        """SIGTERM; its exit code (None: it had to be killed) and how long it took."""
        began = asyncio.get_running_loop().time()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self.process.wait(), END_S)
        except TimeoutError:
            code = None
        return code, asyncio.get_running_loop().time() - began


@asynccontextmanager
async def running(lab: Lab, config: Path) -> AsyncIterator[Running]:
    """A started agent; killed at the end if it is still there."""
    url_file, log = config.with_suffix(".url"), config.with_suffix(".log")
    command = [sys.executable, "-m", "inferostat.cli", "run", "-c", str(config), "--url-file", str(url_file)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    try:
        until = asyncio.get_running_loop().time() + START_S
        while not (url_file.exists() and url_file.read_text()):
            if process.returncode is not None or asyncio.get_running_loop().time() > until:
                raise TimeoutError(f"expected the agent to come up, found: {log.read_text()[-800:]}")
            await asyncio.sleep(0.05)
        yield Running(process, lab, url_file.read_text().strip(), log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def refused(name: str, config: Path) -> Row:
    """A start that must fail, as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferostat.cli", "run", "-c", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), START_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _refusal(name, process.returncode, output.decode(), errors.decode())[0]


def misread(name: str, config: Path) -> tuple[Row, str]:
    """A configuration that must be refused, by the command line in this process; the row, and what it said."""
    result = CliRunner().invoke(app, ["run", "-c", str(config)])
    return _refusal(name, result.exit_code, result.stdout, result.stderr)


def _refusal(name: str, code: int | None, output: str, errors: str) -> tuple[Row, str]:
    text = "\n".join(line for line in errors.splitlines() if not _LOGGED.match(line))
    promises = Promises()
    promises.hold(code == 2, f"exit code {code}, not 2")
    promises.hold("Traceback" not in text, "a traceback is shown")
    promises.hold(output == "", "something is written to stdout")
    promises.hold(explains(text), "it does not say expected, found and what to do")
    kept, after = "nothing was started or moved", "exit code 2"
    return Row(GROUP, name, _lines(text), (), (), kept, after, tuple(promises.broken)), text


def ten_mistakes(lab: Lab) -> Row:
    config = lab.folder / "ten-mistakes.yaml"
    config.write_text(TEN_MISTAKES)
    row, text = misread("ten mistakes in one file", config)
    lines = [line.strip() for line in text.splitlines()]
    told = [path for path in PATHS if any(line.startswith(f"{path}: ") for line in lines)]
    unexplained = [line for line in lines[1:] if not explains(line)]
    promises = Promises(list(row.broken))
    promises.hold(len(told) == len(PATHS), f"not told: {sorted(set(PATHS) - set(told))}")
    promises.hold(not unexplained, f"not explained: {unexplained}")
    after = f"{row.after}; {len(told)} of {len(PATHS)} told"
    return Row(GROUP, row.case, row.said, (), (), row.kept, after, tuple(promises.broken))


def _lines(text: str) -> str:
    """The text's lines as lines of a table's cell."""
    return "<br>".join(stable(line) for line in text.splitlines() if line.strip())


def no_file(lab: Lab) -> Row:
    return misread("no such file", lab.folder / "absent.yaml")[0]


def not_yaml(lab: Lab) -> Row:
    config = lab.folder / "not.yaml"
    config.write_text("pools: [\n")
    return misread("not YAML", config)[0]


async def port_taken(lab: Lab) -> Row:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = _write(lab, "port.yaml", api={"port": taken.getsockname()[1]})
        return await refused("the page's port is taken", config)


async def journal_impossible(lab: Lab) -> Row:
    (lab.folder / "a-file").write_text("not a folder")
    config = _write(lab, "nowhere.yaml", journal=str(lab.folder / "a-file" / "journal.sqlite"))
    return await refused("the journal cannot be created", config)


async def bad_reload(lab: Lab) -> Row:
    """SIGHUP with a file that has mistakes, then with a good one."""
    config = _write(lab, "reload.yaml")
    good = config.read_text()
    async with running(lab, config) as agent:
        promises = Promises()
        promises.hold(await agent.reaches(RELOADED, lambda value: value == 1), "the first load is not told")
        config.write_text(TEN_MISTAKES)
        agent.process.send_signal(signal.SIGHUP)
        promises.hold(await agent.reaches(RELOADED, lambda value: value == 0), f"{RELOADED} stays 1")
        last = await agent.metric(LAST_CYCLE) or 0.0
        promises.hold(await agent.reaches(LAST_CYCLE, lambda value: value > last + 1.5), "the loop stopped")
        said = next((line for line in agent.log.read_text().splitlines() if "reload_failed" in line), "")
        promises.hold("problems in the configuration" in said, "the log does not say it")
        config.write_text(good)
        agent.process.send_signal(signal.SIGHUP)
        promises.hold(await agent.reaches(RELOADED, lambda value: value == 1), f"{RELOADED} stays 0")
        code, _ = await agent.end()
        promises.hold(code == 0, f"exit code {code}")
    return Row(
        GROUP,
        "mistakes in a reload",
        stable(said[said.find("reload_failed") :]),
        (),
        (),
        f"the old configuration stays in force, cycles go on; {RELOADED} is 0",
        f"{RELOADED} is 1 after a good reload",
        tuple(promises.broken),
    )


async def stop_while_hanging(lab: Lab) -> Row:
    """SIGTERM while a scrape hangs that may take a minute."""
    engine = lab.engines[0]
    config = _write(lab, "hanging.yaml", scrape={"deadline": "60s", "jitter": 0.0})
    async with running(lab, config) as agent:
        promises = Promises()
        promises.hold(await agent.reaches(LAST_CYCLE, lambda value: value > 0), "no cycle ran")
        engine.fault = silent
        try:
            await _hangs(agent)
            code, took = await agent.end()
        finally:
            engine.fault = None
        log = agent.log.read_text()
        promises.hold(code == 0, f"exit code {code}")
        promises.hold(took < END_S, f"it took {took:.1f} s")
        promises.hold("Traceback" not in log, "a traceback is shown")
        said = next((line for line in log.splitlines() if "cycle_given_up" in line), "")
    return Row(
        GROUP,
        "told to stop while a scrape hangs",
        stable(said[said.find("cycle_given_up") :]),
        (),
        (),
        "the journal was closed",
        f"exit code {code} within {END_S:g} s",
        tuple(promises.broken),
    )


async def _hangs(agent: Running) -> None:
    """Wait until the last cycle has stayed the last one for two seconds, twice the interval."""
    last, since = await agent.metric(LAST_CYCLE), asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - since < 2.0:
        await asyncio.sleep(0.1)
        now = await agent.metric(LAST_CYCLE)
        if now != last:
            last, since = now, asyncio.get_running_loop().time()


async def rows(lab: Lab) -> AsyncIterator[Row]:
    """The processes run at once: mostly they wait."""
    yield ten_mistakes(lab)
    yield no_file(lab)
    yield not_yaml(lab)
    started = (port_taken, journal_impossible, bad_reload, stop_while_hanging)
    for row in await asyncio.gather(*(case(lab) for case in started)):
        yield row


def _write(lab: Lab, name: str, **changes: Any) -> Path:
    """A good configuration of the laboratory, with changes, as a file."""
    path = lab.folder / name
    path.write_text(yaml.safe_dump(lab.document(**{"api": {"port": 0}, **changes})))
    return path
