"""OpenTelemetry: one trace a cycle with child spans for sense, analyze, decide and act.

The tracer provider is our own, never the process-wide one: a host application's tracing is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import cast

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.trace import Span

EXPORTERS = ("none", "console", "otlp")
_OTLP_MODULE = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class TracingError(Exception):
    """The configured exporter cannot be had: expected, found, what to do."""


def span_exporter(kind: str, endpoint: str | None = None) -> SpanExporter | None:
    """The exporter named in the configuration. `endpoint` is the OTLP/HTTP traces URL, for `otlp` only."""
    if kind == "none":
        return None
    if kind == "console":
        return ConsoleSpanExporter()
    if kind != "otlp":
        raise TracingError(f"expected a trace exporter of {', '.join(EXPORTERS)}, found {kind!r}; name one of these")
    try:
        module = import_module(_OTLP_MODULE)
    except ModuleNotFoundError as error:
        raise TracingError(
            "expected the OTLP exporter to be installed, found no module "
            f"{error.name}; install opentelemetry-exporter-otlp-proto-http or set the exporter to none"
        ) from error
    exporter = module.OTLPSpanExporter(endpoint=endpoint) if endpoint else module.OTLPSpanExporter()
    return cast(SpanExporter, exporter)


class CycleTracer:
    """Opens the spans of a cycle; with no exporter they are built and dropped."""

    def __init__(self, version: str, exporter: SpanExporter | None = None, batch: bool = False) -> None:
        resource = Resource({"service.name": "inferostat", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        if exporter is not None:
            processor = BatchSpanProcessor(exporter) if batch else SimpleSpanProcessor(exporter)
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("inferostat", version)

    @contextmanager
    def cycle(self, number: int) -> Iterator[Span]:
        """The root span: a fresh context, so that every cycle is a trace of its own."""
        with self._tracer.start_as_current_span("cycle", Context(), attributes={"inferostat.cycle": number}) as span:
            yield span

    @contextmanager
    def phase(self, name: str) -> Iterator[Span]:
        """A child of the open cycle; set counts on it (`inferostat.findings`, `inferostat.actions`, ...)."""
        with self._tracer.start_as_current_span(name) as span:
            yield span

    def close(self) -> None:
        """Flush what a batching exporter still holds."""
        self._provider.shutdown()
