"""Control verbs: POST with the token, and never on behalf of another site's page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiohttp import web

from inferostat.api.auth import bearer_matches, same_origin
from inferostat.api.controls import (
    BodyError,
    ControlError,
    FleetControls,
    fault_order,
    load_order,
    pause_reason,
)
from inferostat.api.documents import envelope
from inferostat.api.services import Services

Verb = Callable[[Mapping[str, object]], Awaitable[None]]


def control_routes(services: Services) -> Iterable[web.RouteDef]:
    """POST only, so that any other method gets 405 from the router."""
    controls = services.controls

    async def pause(body: Mapping[str, object]) -> None:
        await controls.pause(pause_reason(body))

    async def resume(body: Mapping[str, object]) -> None:
        await controls.resume()

    async def reload(body: Mapping[str, object]) -> None:
        await controls.reload()

    async def fault(body: Mapping[str, object]) -> None:
        await _fleet(services).fault(fault_order(body))

    async def load(body: Mapping[str, object]) -> None:
        await _fleet(services).load(load_order(body))

    verbs: Mapping[str, Verb] = {
        "/api/v1/pause": pause,
        "/api/v1/resume": resume,
        "/-/reload": reload,
        "/api/v1/fleet/faults": fault,
        "/api/v1/fleet/load": load,
    }
    return [web.post(path, _guarded(services, verb)) for path, verb in verbs.items()]


def _guarded(services: Services, verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        if not same_origin(request.headers, request.headers.get("Host")):
            origin = request.headers.get("Origin")
            raise ControlError(
                f"expected a request of this page or of a program, found origin {origin!r}; "
                "control the agent from its own page or from a terminal",
                403,
            )
        if not bearer_matches(request.headers.get("Authorization"), services.settings.token):
            raise ControlError(
                "expected 'Authorization: Bearer <token>' with the agent's token, found none or another; "
                "take it from the agent's token file",
                401,
            )
        await verb(await _body(request))
        return web.json_response(envelope(services.clock(), ok=True))

    return handle


def _fleet(services: Services) -> FleetControls:
    if services.fleet is None:
        raise ControlError("expected the embedded fleet, found a real one; faults are only for the embedded", 404)
    return services.fleet


async def _body(request: web.Request) -> Mapping[str, object]:
    """The JSON object of the body; an empty body is an empty object."""
    text = await request.text()
    if not text.strip():
        return {}
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BodyError(f"expected a JSON object, found {error}; correct the body") from error
    if not isinstance(body, dict):
        raise BodyError(f"expected a JSON object, found {type(body).__name__}; wrap it in braces")
    return body
