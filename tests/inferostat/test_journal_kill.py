"""kill -9 of an agent while it acts on the real Envoy: no action is lost, none is carried out twice.

Every write on its way to Envoy is counted by a forwarder in front of the admin interface. It also kills, at
the worst moments: when a write has left the agent but not reached Envoy, and when Envoy has it but the agent
not the answer. The other kills are at random. INFEROSTAT_KILLS is their number in all (5 unless set).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from actuators.model import Status
from benchmarks.forwarder import forwarding
from fleetsim.gateway import Gateway
from inferostat.journal import Journal
from tests.inferostat.acting_agent import FIRST_VALUE, KEY

KILLS = int(os.environ.get("INFEROSTAT_KILLS", "5"))
RUNTIME_KEY = "circuit_breakers.llm.default.max_requests"


def is_write(request: web.Request) -> bool:
    return request.path == "/runtime_modify"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(tmp_path)
    await gateway.start()
    yield gateway
    await gateway.stop()


async def _agent(journal: Path, url: str, actions: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.inferostat.acting_agent", str(journal), url, str(actions)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )


@pytest.mark.component
async def test_no_action_lost_and_none_doubled(gateway: Gateway, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    seed = random.randrange(2**32)
    print(f"seed {seed}, {KILLS} kills")
    moments = random.Random(seed)
    resolved: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        forwarder = await stack.enter_async_context(forwarding(gateway.admin_url, session, is_write))
        url = forwarder.url

        for number in range(KILLS):
            process = await _agent(path, url, 1_000_000)
            assert process.stdout is not None
            assert await process.stdout.readline() == b"acting\n"
            if number % 3 == 0:
                forwarder.after = process.kill
            elif number % 3 == 1:
                forwarder.before = process.kill
            else:
                await asyncio.sleep(moments.uniform(0.0, 0.2))
                process.kill()
            await asyncio.wait_for(process.communicate(), 10.0)
            forwarder.before = forwarder.after = None
        settler = await _agent(path, url, 0)
        await settler.communicate()
        assert settler.returncode == 0
        async with session.get(f"{gateway.admin_url}/runtime?format=json") as answer:
            in_force = (await answer.json(content_type=None))["entries"][RUNTIME_KEY]["final_value"]

    journal = Journal.start(path, 0.0)
    records = journal.actions(1_000_000)
    held = journal.held()
    assert journal.recovered is None and journal.unfinished() == ()
    journal.close()

    written = [int(write.query[RUNTIME_KEY]) for write in forwarder.written]
    assert max(Counter(written).values()) == 1, "nothing is carried out twice"
    carried_out = set(written)
    for record in records:
        assert record.outcome is not None
        value = FIRST_VALUE + int(record.action.id[1:])
        expected = Status.APPLIED if value in carried_out else Status.FAILED
        assert record.outcome.status is expected, record
        if "restart" in record.outcome.detail:
            resolved[record.outcome.status] += 1
    assert carried_out <= {FIRST_VALUE + int(record.action.id[1:]) for record in records}, "nothing unrecorded"
    assert held[KEY].value == float(in_force)
    assert set(resolved) == {Status.APPLIED, Status.FAILED}, "both kinds of interrupted action were met"
    print(f"{len(records)} actions, {len(carried_out)} writes at Envoy, resolved after a kill: {dict(resolved)}")
