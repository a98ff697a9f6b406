"""One trace a cycle, on a provider of our own."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from inferostat.tracing import CycleTracer, TracingError, span_exporter

PHASES = ("sense", "analyze", "decide", "act")


def test_each_cycle_is_one_trace_with_its_phases_as_children() -> None:
    memory = InMemorySpanExporter()
    tracer = CycleTracer("1.2.3", memory)
    for number in (7, 8):
        with tracer.cycle(number) as root:
            for name in PHASES:
                with tracer.phase(name) as span:
                    span.set_attribute("inferostat.findings", 2)
            root.set_attribute("inferostat.report", "nothing to do")
    tracer.close()
    spans = memory.get_finished_spans()
    roots = [span for span in spans if span.parent is None]
    assert [root.attributes and root.attributes["inferostat.cycle"] for root in roots] == [7, 8]
    assert len({root.context.trace_id for root in roots if root.context}) == 2
    for root in roots:
        children = [span.name for span in spans if span.parent is not None and span.parent == root.context]
        assert tuple(children) == PHASES
    assert roots[0].resource.attributes["service.name"] == "inferostat"


def test_an_error_in_a_phase_is_recorded_and_passes() -> None:
    memory = InMemorySpanExporter()
    tracer = CycleTracer("1", memory)
    with pytest.raises(ValueError, match="broken"), tracer.cycle(1), tracer.phase("sense"):
        raise ValueError("broken")
    tracer.close()
    assert not memory.get_finished_spans()[0].status.is_ok


def test_the_process_wide_provider_is_left_alone() -> None:
    before = trace.get_tracer_provider()
    tracer = CycleTracer("1")
    with tracer.cycle(1):
        pass
    tracer.close()
    assert trace.get_tracer_provider() is before


def test_exporters_by_name() -> None:
    assert span_exporter("none") is None
    assert isinstance(span_exporter("console"), ConsoleSpanExporter)
    with pytest.raises(TracingError, match="expected a trace exporter of none, console, otlp, found 'zipkin'"):
        span_exporter("zipkin")


def test_otlp_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("inferostat.tracing.import_module", missing)
    with pytest.raises(TracingError, match="install opentelemetry-exporter-otlp-proto-http"):
        span_exporter("otlp", "http://127.0.0.1:4318/v1/traces")
