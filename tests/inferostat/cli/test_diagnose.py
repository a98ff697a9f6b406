"""`inferostat diagnose` on recorded states of a real engine, replayed one body a scrape."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.inferostat.cli.replay import replay

LIVE = Path(__file__).parents[2] / "fixtures" / "live"


def bodies(state: str, numbers: Sequence[int] | None) -> list[Path]:
    if numbers is None:
        return [LIVE / f"vllm-0.32-{state}.prom"] * 6
    return [LIVE / f"vllm-0.32-{state}-{number:02d}.prom" for number in numbers]


async def diagnose(paths: Sequence[Path], then_gone: bool = False) -> tuple[dict[str, Any], int]:
    """The document and the exit code of the command, run as a user would."""
    async with replay(paths, then_gone) as url:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "inferostat.cli", "diagnose", url),
            *("--samples", "6", "--interval", "1s", "-o", "json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
    assert child.returncode in (0, 1, 4), err.decode()
    document: dict[str, Any] = json.loads(out)
    return document, child.returncode


def serious(document: dict[str, Any]) -> list[str]:
    return [item["slug"] for item in document["findings"] if item["severity"] != "info"]


async def test_states_of_a_real_engine_are_told_apart() -> None:
    idle, overload, kv, hang, crash = await asyncio.gather(
        diagnose(bodies("idle-after", None)),
        diagnose(bodies("overload", range(5, 11))),
        diagnose(bodies("kvtight", range(2, 8))),
        diagnose(bodies("hang", range(6))),
        diagnose(bodies("crash", (1, 2, 3)), then_gone=True),
    )
    assert idle[0]["findings"] == []
    assert idle[0]["verdict"]["slug"] is None
    assert idle[1] == 0
    assert "saturated" in serious(overload[0])
    assert "kv-pressure" in serious(kv[0])
    assert serious(hang[0])[0] in ("engine-hung", "gauges-stale")
    assert max(item["confidence"] for item in hang[0]["findings"]) <= 0.7
    assert hang[0]["verdict"]["confidence"] <= 0.7
    assert serious(crash[0])[0] == "engine-down"
    assert {"kv-pressure", "engine-hung", "engine-down"}.isdisjoint(serious(overload[0]))
    assert {"engine-hung", "engine-down"}.isdisjoint(serious(kv[0]))
