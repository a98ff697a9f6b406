"""One simulated engine behind HTTP: the OpenAI-compatible API, /health and /metrics on a port of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import dataclass
from itertools import count

from aiohttp import web

from fleetsim.driver import Driver
from fleetsim.engine import Engine, Sequence, StepResult
from fleetsim.openai_api import Answer, BadRequest, Completion, error_body, parse
from fleetsim.timing import Degradation, Profile
from fleetsim.vllm_metrics import MAX_MODEL_LEN, EngineMetrics

METRICS_CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
HANDLER_OF = {False: "/v1/completions", True: "/v1/chat/completions"}


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """How the fleet's servers behave. `stream_interval` is the number of tokens to a streamed chunk."""

    model_name: str = "llama-3.1-70b"
    abort_on_disconnect: bool = True
    headers_at_first_token: bool = True
    stream_interval: int = 8


class EngineGone(ConnectionResetError):
    """The engine's process died under the request."""


class Delivery:
    """Hands a request's tokens from the engine's steps to the handler that writes them."""

    __slots__ = ("_changed", "available", "finished", "gone")

    def __init__(self) -> None:
        self.available = 0
        self.finished = False
        self.gone = False
        self._changed: asyncio.Future[None] | None = None

    def push(self, available: int, finished: bool) -> None:
        self.available, self.finished = available, finished
        self._notify()

    def fail(self) -> None:
        self.gone = True
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def more_than(self, sent: int) -> int:
        """Wait until more than `sent` tokens are there or the request is finished; how many there are."""
        while self.available <= sent and not self.finished:
            if self.gone:
                raise EngineGone("expected tokens, found the engine gone: try another replica")
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        return self.available


def bind_loopback(port: int = 0) -> socket.socket:
    """A socket bound to a loopback port (0: a free one). Until it listens, connections to it are refused."""
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound


class EngineServer:
    """One engine process. A crash or a stop ends it for good; a restart is a new EngineServer."""

    def __init__(self, profile: Profile, options: ServingOptions) -> None:
        self.engine = Engine(profile)
        self.metrics = EngineMetrics(profile, options.model_name, time.time())
        self.driver = Driver(self.engine, time.monotonic, self._on_step)
        self.port = 0
        self._options = options
        self._deliveries: dict[int, Delivery] = {}
        self._ids = count(1)
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/completions", self._text_completion),
                web.post("/v1/chat/completions", self._chat_completion),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(
            app,
            handler_cancellation=options.abort_on_disconnect,
            access_log=None,
            keepalive_timeout=3600.0,
            shutdown_timeout=0.1,
        )

    @property
    def in_flight(self) -> int:
        """Requests the engine still holds, abandoned ones included."""
        return len(self.engine.running) + len(self.engine.waiting)

    async def start(self, bound: socket.socket) -> None:
        """Listen on a bound socket, which the server owns from here on, and step."""
        self.port = bound.getsockname()[1]
        await self._runner.setup()
        await web.SockSite(self._runner, bound, backlog=1024).start()
        self.driver.start()

    async def stop(self) -> None:
        """End the process: connections are dropped, the port is closed."""
        await self.driver.stop()
        if self._runner.server is not None:
            for connection in self._runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        for delivery in self._deliveries.values():
            delivery.fail()
        await self._runner.cleanup()

    def degrade(self, degradation: Degradation) -> None:
        """Applies from the next step on."""
        self.engine.degradation = degradation

    def _on_step(self, result: StepResult) -> None:
        self.metrics.observe(self.engine, result)
        interval = self._options.stream_interval
        for sequence in result.first_tokens:
            self._deliver(sequence)
        for sequence, _ in result.gaps:
            if sequence.generated % interval == 0:
                self._deliver(sequence)
        for sequence in result.finished:
            self._deliver(sequence)

    def _deliver(self, sequence: Sequence) -> None:
        delivery = self._deliveries.get(sequence.request_id)
        if delivery is not None:
            delivery.push(sequence.generated, sequence.finished_at is not None)

    async def _text_completion(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def _chat_completion(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            asked = await self._read(request, chat)
        except BadRequest as error:
            self.metrics.observe_http(HANDLER_OF[chat], error.status)
            return web.json_response(error_body(error.status, str(error)), status=error.status)
        self.metrics.observe_http(HANDLER_OF[chat], 200)
        sequence = Sequence(next(self._ids), asked.prompt_tokens, asked.max_tokens, time.monotonic())
        delivery = self._deliveries[sequence.request_id] = Delivery()
        self.driver.submit(sequence)
        answer = Answer(asked, sequence.request_id)
        try:
            if asked.stream:
                return await self._stream(request, delivery, answer)
            tokens = 0
            while not delivery.finished:
                tokens = await delivery.more_than(tokens)
            return web.json_response(answer.whole(delivery.available))
        except asyncio.CancelledError:  # the client has left and this server notices
            self._abort(sequence)
            raise
        except ConnectionResetError:  # it left and nobody told the engine, which works on
            return web.Response(status=499)
        finally:
            del self._deliveries[sequence.request_id]

    async def _read(self, request: web.Request, chat: bool) -> Completion:
        try:
            body = await request.json()
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise BadRequest(400, "expected a JSON body, found something else: send JSON") from error
        return parse(body, chat, self._options.model_name, MAX_MODEL_LEN)

    async def _stream(self, request: web.Request, delivery: Delivery, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        if not self._options.headers_at_first_token:
            await response.prepare(request)
        sent = 0
        while not delivery.finished or sent < delivery.available:
            available = await delivery.more_than(sent)
            if sent == 0 and self._options.headers_at_first_token:
                await response.prepare(request)
            data = answer.chunk(available - sent, delivery.finished)
            sent = available
            await response.write(data + answer.closing(sent) if delivery.finished else data)
        await response.write_eof()
        return response

    def _abort(self, sequence: Sequence) -> None:
        self.engine.abort(sequence)
        if not self.driver.hung:
            self.metrics.observe_gauges(self.engine)

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self._options.model_name, "object": "model", "owned_by": "fleetsim"}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.render().encode(), headers={"Content-Type": METRICS_CONTENT_TYPE})
