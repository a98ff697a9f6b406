"""Everything that only reads: probes, own metrics, the JSON documents, the page and its files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from inferostat.api import documents
from inferostat.api.cells import Document
from inferostat.api.controls import BodyError, ControlError
from inferostat.api.services import Services

SLUG = re.compile(r"[a-z0-9-]{1,64}")
CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

Handler = Callable[[web.Request], Awaitable[web.Response]]


class ReadRoutes:
    """Handlers over the board. The files of the page are read once: they are part of the package."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._templates = Environment(
            loader=PackageLoader("inferostat.api"), autoescape=True, undefined=StrictUndefined
        )
        static = files("inferostat.api") / "static"
        self._static = {item.name: item.read_bytes() for item in static.iterdir() if item.is_file()}

    def table(self) -> Iterable[web.RouteDef]:
        board, now = self._services.board, self._services.clock
        read: dict[str, Callable[[], Document]] = {
            "targets": lambda: documents.envelope(now(), targets=documents.targets(board, now())),
            "signals": lambda: documents.envelope(now(), **documents.signals(board)),
            "findings": lambda: documents.envelope(now(), findings=documents.findings(board)),
            "decisions": lambda: documents.envelope(now(), **documents.decisions(board)),
            "actions": lambda: documents.envelope(now(), actions=documents.actions(board)),
            "measures": lambda: documents.envelope(now(), measures=documents.measures(board)),
        }
        return [
            web.get("/", self._page),
            web.get("/runbook/{slug}", self._runbook),
            web.get("/static/{name}", self._file),
            web.get("/-/healthy", self._healthy),
            web.get("/-/ready", self._ready),
            web.get("/metrics", self._metrics),
            web.get("/api/v1/status", self._status),
            web.get("/api/v1/series", self._series),
            *(web.get(f"/api/v1/{name}", _reader(document)) for name, document in read.items()),
        ]

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="inferostat is healthy.\n")

    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._services.board.not_ready()
        if reason is None:
            return web.Response(text="inferostat is ready.\n")
        return web.Response(text=f"{reason}\n", status=503)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = generate_latest(self._services.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, request: web.Request) -> web.Response:
        document = documents.status(self._services.board, self._services.clock(), _since(request))
        return _json(document)

    async def _series(self, request: web.Request) -> web.Response:
        series = self._services.board.series.document(_since(request))
        return _json(documents.envelope(self._services.clock(), series=series))

    async def _page(self, request: web.Request) -> web.Response:
        services = self._services
        text = self._templates.get_template("page.html").render(
            version=services.board.version,
            mode=services.board.mode,
            embedded=services.board.embedded,
            can_fault=services.fleet is not None,
            token=services.page_token,
        )
        return web.Response(text=text, content_type="text/html")

    async def _runbook(self, request: web.Request) -> web.Response:
        slug = request.match_info["slug"]
        section = self._services.runbook(slug) if SLUG.fullmatch(slug) else None
        if section is None:
            raise ControlError(f"expected the slug of a finding, found {slug!r}; see the list of findings", 404)
        text = self._templates.get_template("runbook.html").render(slug=slug, section=section)
        return web.Response(text=text, content_type="text/html")

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        body = self._static.get(name)
        if body is None:
            raise ControlError(f"expected a file of the page, found {name!r}; reload the page", 404)
        suffix = name[name.rfind(".") :]
        return web.Response(
            body=body, content_type=CONTENT_TYPES.get(suffix, "application/octet-stream"), charset="utf-8"
        )


def _reader(document: Callable[[], Document]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return _json(document())

    return handle


def _json(document: Document) -> web.Response:
    # allow_nan=False: a NaN that got this far is a defect that must fail, not travel
    return web.Response(text=json.dumps(document, allow_nan=False), content_type="application/json")


def _since(request: web.Request) -> float | None:
    text = request.query.get("since")
    if text is None:
        return None
    try:
        since = float(text)
    except ValueError:
        since = math.nan
    if not math.isfinite(since):
        raise BodyError(f"expected since in unix seconds, found {text!r}; leave it out for everything")
    return since
