"""The HTTP server: status API, own metrics and page, with the checks every request goes through."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from inferostat.api.auth import host_allowed, is_loopback
from inferostat.api.control_routes import control_routes
from inferostat.api.controls import ControlError
from inferostat.api.read_routes import ReadRoutes
from inferostat.api.services import SERVICES, ApiSettings, Services

__all__ = ["ApiSettings", "Services", "StatusServer", "build_app"]

LARGEST_BODY_BYTES = 64 * 1024
SHUTDOWN_S = 2.0
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # the page may carry the token, the API the present: neither belongs into a cache
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(services: Services) -> web.Application:
    """The application without a socket (tests, or a server that has one)."""
    app = web.Application(middlewares=[_guard], client_max_size=LARGEST_BODY_BYTES)
    app[SERVICES] = services
    app.add_routes(ReadRoutes(services).table())
    app.add_routes(control_routes(services))
    return app


class StatusServer:
    """Listens from `start` to `close`, in the caller's event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Bind and serve; returns the URL (with port 0, that of the port found). OSError if it is taken."""
        settings = self._services.settings
        runner = web.AppRunner(build_app(self._services), access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, settings.host, settings.port)
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        host, port = runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign host names, turn errors into JSON, and set the headers of every answer."""
    settings = request.app[SERVICES].settings
    try:
        if not host_allowed(request.headers.get("Host"), is_loopback(settings.host), settings.allowed_hosts):
            raise ControlError(
                f"expected a loopback host name, found {request.headers.get('Host')!r}; "
                "open the page as localhost or add the name to the allowed hosts",
                421,
            )
        response = await handler(request)
    except ControlError as error:
        response = error_response(str(error), error.status)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        response = error_response(f"{error.status} {error.reason}: {request.method} {request.path}", error.status)
        response.headers.update(headers)
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def error_response(message: str, status: int) -> web.Response:
    return web.json_response({"schema_version": 1, "error": message}, status=status, dumps=json.dumps)
