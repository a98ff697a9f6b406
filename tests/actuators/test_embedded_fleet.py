"""The embedded and envoy backends against the real fleet process; its own log is the truth."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actuators.embedded import EmbeddedBackend
from actuators.envoy import EnvoyBackend
from actuators.model import Lever, LeverKey, Status
from actuators.rest import RestClient
from actuators.writing import eventually
from tests.actuators.conftest import POOL, action

pytestmark = pytest.mark.component
SCALE = LeverKey(Lever.SCALE, POOL, POOL)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """What the fleet process says of itself once it is up."""
    command = ("-m", "fleetsim.fleet", "--workdir", str(tmp_path), "--scenario", "steady")
    with (tmp_path / "fleet.err").open("wb") as log:
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=log, stdout=log)
    described = tmp_path / "fleet.json"

    async def up() -> bool:
        assert process.returncode is None, (tmp_path / "fleet.err").read_text()
        return described.exists()

    try:
        assert await eventually(up, 30.0)
        yield json.loads(described.read_text())
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20.0)


async def test_scale_and_drain_show_in_the_fleets_log_and_at_envoy(fleet: dict[str, Any]) -> None:
    backend = EmbeddedBackend.from_options("fleet", {"admin_url": fleet["admin_url"]})
    gateway = fleet["gateway"]
    edge = EnvoyBackend.from_options(
        "edge",
        {
            "admin_url": gateway["admin_url"],
            "eds_path": gateway["eds_path"],
            "clusters": {POOL: gateway["cluster"]},
        },
    )
    rest = RestClient(fleet["admin_url"], 2.0)
    try:
        (before,) = await backend.read((SCALE,))
        assert (before.value, before.ready) == (4.0, 4)
        up = action(Lever.SCALE, POOL, 4.0, 5.0, "up")
        assert (await backend.apply(up, 101.0)).status is Status.APPLIED
        assert (await backend.apply(up, 102.0)).status is Status.APPLIED, "sent again after a lost outcome"
        stale = await backend.apply(action(Lever.SCALE, POOL, 4.0, 6.0, "stale"), 103.0)
        assert (stale.status, stale.readback) == (Status.CONFLICT, 5.0)
        too_many = await backend.apply(action(Lever.SCALE, POOL, 5.0, 999.0, "too-many"), 104.0)
        assert too_many.status is Status.FAILED and "found 999" in too_many.detail
        (after,) = await backend.read((SCALE,))
        assert (after.value, after.ready) == (5.0, 4), "the fifth replica is still to come"

        replica = (await rest.request_json("GET", "/admin/fleet"))["replicas"][0]
        drain = action(Lever.DRAIN, replica["name"], 0.0, 1.0, "drain")
        assert (await backend.apply(drain, 105.0)).status is Status.APPLIED
        at_envoy = LeverKey(Lever.DRAIN, POOL, replica["address"])

        async def drained() -> bool:
            (reading,) = await edge.read((at_envoy,))
            return not reading.known or reading.value == 1.0

        assert await eventually(drained, 5.0)
        log = await rest.request_json("GET", "/admin/log")
        carried_out = [call for call in log["calls"] if call["request_id"] in ("up", "drain")]
        assert [call["request_id"] for call in carried_out] == ["up", "drain"]
    finally:
        await rest.close()
        await edge.close()
        await backend.close()
