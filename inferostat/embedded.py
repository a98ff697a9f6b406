"""The embedded fleet as the daemon sees it: a system with an HTTP admin API like any other, and its configuration.

The fleet and its clients are processes of their own; everything here goes through their HTTP interfaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from inferostat.api.controls import ControlError, FaultOrder, LoadOrder
from inferostat.api.fleet import FleetInfo

REQUEST_S = 3.0
LEVERS_BY_BACKEND = {
    "envoy": ("weight", "breaker", "admission", "retry_budget"),
    "fleet": ("scale",),
}


@dataclass(frozen=True)
class FleetSetup:
    """What the agent must be told of a fleet it is to drive. `levers`: those that may act (None: all)."""

    admin_url: str
    gateway_admin_url: str
    eds_path: str
    cluster: str
    pool: str
    max_replicas: int
    max_num_seqs: int
    price_usd_per_gpu_hour: float
    client_timeout_s: float
    client_timeout_on: str
    client_retries: int
    ready_within_s: float
    port: int = 0
    levers: frozenset[str] | None = None


def fleet_config(setup: FleetSetup, workdir: Path) -> dict[str, Any]:
    """A complete configuration for a running embedded fleet, in mode act."""
    levers: dict[str, dict[str, Any]] = {}
    for backend, names in LEVERS_BY_BACKEND.items():
        for lever in names:
            allowed = setup.levers is None or lever in setup.levers
            levers[lever] = {"backend": backend, "mode": "act" if allowed else "observe"}
    levers["scale"] |= {"maximum": setup.max_replicas, "verify_within": setup.ready_within_s}
    pool = {
        "targets_file": str(workdir / "targets.json"),
        "clients": {
            "timeout": setup.client_timeout_s,
            "timeout_on": setup.client_timeout_on,
            "retries": setup.client_retries,
        },
        "price_usd_per_gpu_hour": setup.price_usd_per_gpu_hour,
        "max_num_seqs": setup.max_num_seqs,
        "scaling": {"ready_within": setup.ready_within_s},
        "levers": levers,
    }
    return {
        "interval": 1.0,
        "retention": 300.0,
        "mode": "act",
        "pools": {setup.pool: pool},
        "backends": {
            "envoy": {
                "kind": "envoy",
                "admin_url": setup.gateway_admin_url,
                "eds_path": setup.eds_path,
                "clusters": {setup.pool: setup.cluster},
            },
            "fleet": {"kind": "embedded", "admin_url": setup.admin_url},
        },
        "scrape": {"jitter": 0.0, "deadline": 0.8},
        "api": {"port": setup.port, "token_file": str(workdir / "token")},
        "journal": str(workdir / "journal.sqlite"),
    }


class FleetLink:
    """Admin API of the fleet and control API of its clients; implements the page's fault and load buttons."""

    def __init__(self, admin_url: str, clients_url: str | None) -> None:
        self._admin_url = admin_url
        self._clients_url = clients_url
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_S))
        self._reverts: set[asyncio.Task[None]] = set()
        self._load_factor = 1.0
        self._ends: dict[str, float] = {}  # kind of fault -> unix time at which it ends by itself

    async def info(self) -> FleetInfo | None:
        """What fleet and clients say now; None while the fleet does not answer."""
        try:
            document = await self._get(f"{self._admin_url}/admin/fleet")
        except (aiohttp.ClientError, TimeoutError, TypeError, ValueError):
            return None
        clients: Mapping[str, float] = {}
        if self._clients_url is not None:
            try:
                stats = await self._get(f"{self._clients_url}/stats")
                clients = {name: float(value) for name, value in stats.items() if isinstance(value, int | float)}
            except (aiohttp.ClientError, TimeoutError, TypeError, ValueError):
                clients = {}
        found = FleetInfo.from_admin(document, self._load_factor, clients)
        return replace(found, faults=tuple(replace(f, until=self._ends.get(f.kind)) for f in found.faults))

    async def start_clients(self) -> float:
        """Let the clients begin (once); the wall-clock time of their first arrivals' zero."""
        answer = await self._send("POST", f"{self._clients_url}/start", {})
        return float(answer["started_at"])

    async def fault(self, order: FaultOrder) -> None:
        targets: object = list(order.targets) or "all"
        body: dict[str, object] = {"kind": order.kind, "targets": targets}
        if order.g is not None:
            body["g"] = order.g
        await self._send("POST", f"{self._admin_url}/admin/faults", body)
        self._ends = {} if order.kind == "recover" else {k: v for k, v in self._ends.items() if k != order.kind}
        if order.duration_s is not None and order.kind != "recover":
            self._ends[order.kind] = time.time() + order.duration_s
            self._later(
                order.duration_s,
                "POST",
                f"{self._admin_url}/admin/faults",
                {"kind": "recover", "targets": targets},
            )

    async def load(self, order: LoadOrder) -> None:
        if self._clients_url is None:
            raise ControlError("expected clients of the embedded fleet, found none running", 409)
        url = f"{self._clients_url}/load"
        await self._send("PUT", url, {"factor": order.factor})
        self._load_factor = order.factor
        if order.duration_s is not None:
            self._later(order.duration_s, "PUT", url, {"factor": 1.0}, load_factor=1.0)

    async def close(self) -> None:
        for task in self._reverts:
            task.cancel()
        await asyncio.gather(*self._reverts, return_exceptions=True)
        await self._session.close()

    def _later(
        self,
        delay_s: float,
        method: str,
        url: str,
        body: Mapping[str, object],
        load_factor: float | None = None,
    ) -> None:
        async def revert() -> None:
            await asyncio.sleep(delay_s)
            await self._send(method, url, body)
            if load_factor is not None:
                self._load_factor = load_factor

        task = asyncio.create_task(revert())
        self._reverts.add(task)
        task.add_done_callback(self._reverts.discard)

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._session.get(url) as response:
            response.raise_for_status()
            document = await response.json()
        if not isinstance(document, dict):
            raise TypeError(f"expected an object from {url}, found {type(document).__name__}")
        return document

    async def _send(self, method: str, url: str, body: Mapping[str, object]) -> dict[str, Any]:
        try:
            async with self._session.request(method, url, json=body) as response:
                if response.status >= 400:
                    text = (await response.text())[:200]
                    raise ControlError(
                        f"expected the fleet to accept {dict(body)}, found {response.status}: {text}", 502
                    )
                answer = await response.json()
                return answer if isinstance(answer, dict) else {}
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ControlError(f"expected an answer of the embedded fleet at {url}, found {error!r}", 502) from error
