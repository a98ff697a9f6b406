"""What happened when: findings as the agent reported them, actions and their effect from its journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp

from inferostat.journal import ActionRecord

LIMITS = ("breaker", "admission", "retry_budget")


@dataclass(frozen=True, slots=True)
class Entry:
    """`t`: seconds from the clients' start. `kind`: fault, finding, action or effect."""

    t: float
    kind: str
    lever: str | None
    target: str
    state: str
    reason: str

    def document(self) -> dict[str, Any]:
        return asdict(self)


class Watcher:
    """Looks at the agent's API twice a second and keeps when findings began and ended."""

    def __init__(self, session: aiohttp.ClientSession, agent_url: str, token: str) -> None:
        self.entries: list[Entry] = []
        self.headline = ""
        self._session = session
        self._url = agent_url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._active: dict[tuple[str, str], str] = {}

    async def look(self, started_at: float) -> float:
        """Seconds since the start; a look that fails is made up for by the next one."""
        t = time.time() - started_at
        try:
            findings = (await self._get("/api/v1/findings"))["findings"]
        except (aiohttp.ClientError, TimeoutError):
            return t
        now = {(item["slug"], _scope(item["scope"])): item["summary"] for item in findings}
        for key in now.keys() - self._active.keys():
            self.entries.append(Entry(t, "finding", None, key[1], key[0], now[key]))
        for key in self._active.keys() - now.keys():
            self.entries.append(Entry(t, "finding", None, key[1], f"{key[0]} over", self._active[key]))
        self._active = now
        self.headline = next((slug for slug, _ in now if slug.startswith("retry-storm")), "") or next(
            (slug for slug, _ in now if slug != "vulnerable"), ""
        )
        return t

    async def pause(self, reason: str) -> None:
        await self._post("/api/v1/pause", {"reason": reason})

    async def resume(self) -> None:
        await self._post("/api/v1/resume", {})

    async def limits(self) -> dict[str, float]:
        """Limits still in force, by lever and target."""
        levers = (await self._get("/api/v1/status"))["levers"]
        return {
            f"{item['lever']}:{item['target']}": item["value"]
            for item in levers
            if item["lever"] in LIMITS and item["value"] is not None
        }

    async def fleet_lag(self, admin_url: str) -> float | None:
        async with self._session.get(f"{admin_url}/admin/fleet") as response:
            lag = (await response.json())["loop_lag_p99_s"]
        return None if lag is None else float(lag)

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._session.get(self._url + path) as response:
            response.raise_for_status()
            document: dict[str, Any] = await response.json()
            return document

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        async with self._session.post(self._url + path, json=body, headers=self._headers) as response:
            response.raise_for_status()


def _scope(value: object) -> str:
    return f"{value['kind']}/{value['name']}" if isinstance(value, dict) else str(value)


def action_entries(records: Sequence[ActionRecord], started_at: float) -> list[Entry]:
    """Each action with its outcome, and the later word on its effect."""
    entries: list[Entry] = []
    for record in records:
        action = record.action
        lever, target = action.key.lever.value, action.key.target
        state = record.outcome.status.value if record.outcome else "open"
        what = "undo" if action.undo_of else "action"
        moved = f"{_text(action.before)} -> {_text(action.after)}: {action.reason}"
        entries.append(Entry(action.at - started_at, what, lever, target, state, moved))
        seen = record.verification
        if seen is not None:
            entries.append(Entry(seen.at - started_at, "effect", lever, target, seen.state, seen.detail))
    return entries


def _text(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"
