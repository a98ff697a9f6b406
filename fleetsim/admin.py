"""The fleet's HTTP admin API: what an operator of a real fleet has in its orchestrator."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetsim.children import ChildError
from fleetsim.events import Fault
from fleetsim.file_sd import POOL
from fleetsim.gateway import Gateway
from fleetsim.pool import Pool, UnknownReplica

Reply = tuple[int, dict[str, Any]]
Model = TypeVar("Model", bound=BaseModel)


class NoArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ScaleCommand(NoArguments):
    pool: str
    replicas: int = Field(ge=0)
    expected: int | None = None


class DrainCommand(NoArguments):
    drain: bool


class AdminApi:
    """Serves the pool over HTTP. A `request_id` seen before gets its first answer again and does nothing."""

    def __init__(self, pool: Pool, gateway: Gateway, exporter_url: str, lag_p99_s: Callable[[], float]) -> None:
        self._pool = pool
        self._gateway = gateway
        self._exporter_url = exporter_url
        self._lag_p99_s = lag_p99_s
        self._calls: list[dict[str, Any]] = []
        self._answered: dict[str, Reply] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/admin/fleet", self._fleet),
                web.get("/admin/log", self._log),
                web.put("/admin/scale", self._scale),
                web.put("/admin/replicas/{id}/drain", self._drain),
                web.post("/admin/faults", self._faults),
                web.post("/admin/gateway/restart", self._restart_gateway),
            ]
        )
        return app

    async def _fleet(self, request: web.Request) -> web.Response:
        pool = self._pool
        price = pool.scenario.hardware.price_usd_per_gpu_hour
        return web.json_response(
            {
                "pool": POOL,
                "target": pool.target,
                "max_replicas": pool.scenario.max_replicas,
                "ready": pool.ready,
                "replicas": [r.describe(price) for r in pool.replicas],
                "gateway": self._gateway.describe(),
                "exporter_url": self._exporter_url,
                "loop_lag_p99_s": self._lag_p99_s(),
                "faults": pool.faults(),
            }
        )

    async def _log(self, request: web.Request) -> web.Response:
        return web.json_response({"calls": self._calls, "transitions": self._pool.transitions})

    async def _scale(self, request: web.Request) -> web.Response:
        async def act(command: ScaleCommand) -> Reply:
            pool = self._pool
            current = {"target": pool.target, "ready": pool.ready}
            if command.pool != POOL:
                return 404, {"error": f"expected pool {POOL!r}, found {command.pool!r}: name a pool of the fleet"}
            if not 1 <= command.replicas <= pool.scenario.max_replicas:
                limit = pool.scenario.max_replicas
                return 422, {"error": f"expected 1 to {limit} replicas, found {command.replicas}", **current}
            if command.expected is not None and command.expected != pool.target:
                return 409, {"error": f"expected target {command.expected}, found {pool.target}", **current}
            pool.scale(command.replicas)
            return 200, {"target": pool.target, "ready": pool.ready}

        return await self._command(request, ScaleCommand, act)

    async def _drain(self, request: web.Request) -> web.Response:
        async def act(command: DrainCommand) -> Reply:
            replica_id = request.match_info["id"]
            self._pool.drain(replica_id, command.drain)
            return 200, {"id": replica_id, "state": self._pool.find(replica_id).state.value}

        return await self._command(request, DrainCommand, act)

    async def _faults(self, request: web.Request) -> web.Response:
        async def act(fault: Fault) -> Reply:
            return 200, {"kind": fault.kind, "targets": await self._pool.inflict(fault)}

        return await self._command(request, Fault, act)

    async def _restart_gateway(self, request: web.Request) -> web.Response:
        async def act(_: NoArguments) -> Reply:
            await self._gateway.restart()
            return 200, self._gateway.describe()

        return await self._command(request, NoArguments, act)

    async def _command(
        self, request: web.Request, model: type[Model], act: Callable[[Model], Awaitable[Reply]]
    ) -> web.Response:
        """Validate the body, answer a repeated request from memory, act otherwise; log what was acted on."""
        try:
            body = json.loads(await request.read() or b"{}")
            if not isinstance(body, dict):
                raise TypeError("expected a JSON object, found something else: send an object")
            request_id = body.pop("request_id", None)
            if not isinstance(request_id, str | None):
                raise TypeError("expected request_id to be a string, found something else: send a string")
            command = model.model_validate(body)
        except (ValidationError, ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        if request_id is not None and request_id in self._answered:
            status, answer = self._answered[request_id]
            return web.json_response(answer, status=status)
        what = f"{request.method} {request.path}"
        entry: dict[str, Any] = {"at": time.time(), "request_id": request_id, "what": what, "body": body}
        try:
            status, answer = await act(command)
        except UnknownReplica as error:
            status, answer = 404, {"error": str(error)}
        except ChildError as error:
            status, answer = 500, {"error": str(error)}
        self._calls.append({**entry, "status": status})
        if request_id is not None and status == 200:
            self._answered[request_id] = status, answer
        return web.json_response(answer, status=status)
