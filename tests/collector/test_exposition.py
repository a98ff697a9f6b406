"""The exposition reader: exactness on its own, and against prometheus_client's parsers."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from collector.exposition import Exposition, ExpositionReader

FIXTURES = Path(__file__).parents[1] / "fixtures"


def read(text: str, content_type: str | None = None, complete: bool = False) -> Exposition:
    return ExpositionReader().read(text.encode(), content_type, complete)


def as_table(exposition: Exposition) -> list[tuple[str, tuple[tuple[str, str], ...], str]]:
    """Series and values in order; repr makes NaN comparable and floats exact."""
    return [
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(value)))
        for sample, value in zip(exposition.layout.samples, exposition.values, strict=True)
    ]


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("m 1", {}, 1.0),
        ("m{} 1", {}, 1.0),
        ('m{a="b"} 1.5e3', {"a": "b"}, 1500.0),
        ('m{a="b",} 2', {"a": "b"}, 2.0),
        ('m{a="b", c="d"} 3', {"a": "b", "c": "d"}, 3.0),
        ('m { a = "b" , c = "d" , } 4', {"a": "b", "c": "d"}, 4.0),
        ('m{a="b"}\t5', {"a": "b"}, 5.0),
        ('m{a="b"}6', {"a": "b"}, 6.0),
        ('m{a="x\\\\y\\"z\\nw"} 7', {"a": 'x\\y"z\nw'}, 7.0),
        ('m{a="}{, #=\\""} 8', {"a": '}{, #="'}, 8.0),
        ('m{a="ü"} 9', {"a": "ü"}, 9.0),
        ("m +Inf", {}, math.inf),
        ("m -Inf", {}, -math.inf),
        ('m{le="Inf"} 1', {"le": "Inf"}, 1.0),
        ("  m 10  ", {}, 10.0),
        ('{"m",a="b"} 11', {"a": "b"}, 11.0),
        ('m{"a.b"="c"} 12', {"a.b": "c"}, 12.0),
    ],
)
def test_one_line(line: str, labels: dict[str, str], value: float) -> None:
    exposition = read(line + "\n")
    assert exposition.layout.errors == ()
    (sample,) = exposition.layout.samples
    assert (sample.name, dict(sample.labels), float(exposition.values[0])) == ("m", labels, value)


@pytest.mark.parametrize("text", ["NaN", "nan", "-nan", "+NaN"])
def test_nan(text: str) -> None:
    assert math.isnan(float(read(f"m {text}\n").values[0]))


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m one",
        "m 1_000",
        "m ١",
        'm{a="b} 1',
        "m{a=b} 1",
        'm{a="b" c="d"} 1',
        'm{a="b",,c="d"} 1',
        'm{a="1",a="2"} 1',
        'team{team="Team "Red" A"} 5',
        "m 1 soon",
        "1m 1",
        "m 1 2 3",
    ],
)
def test_an_unreadable_line_is_reported_and_left_out(line: str) -> None:
    exposition = read(f"before 1\n{line}\nafter 2\n")
    assert [sample.name for sample in exposition.layout.samples] == ["before", "after"]
    (error,) = exposition.layout.errors
    assert error.line == 2
    assert str(error).startswith("line 2: expected")
    assert exposition.layout.error is None


def test_an_unreadable_line_names_its_family() -> None:
    assert [error.name for error in read('a 1\nb{x="} 2\n').layout.errors] == ["b"]


def test_a_line_that_is_not_unicode_is_reported() -> None:
    exposition = ExpositionReader().read(b'good 1\nbad{a="\xff\xfe"} 2\n')
    assert [sample.name for sample in exposition.layout.samples] == ["good"]
    assert exposition.layout.errors[0].line == 2
    str(exposition.layout.errors[0]).encode()


def test_timestamps_are_milliseconds_in_text_and_seconds_in_openmetrics() -> None:
    text = read("m 1 1790000000500\nn 2\n")
    assert text.timestamps is not None
    assert float(text.timestamps[0]) == 1790000000.5
    assert math.isnan(text.timestamps[1])
    openmetrics = read("m 1 1790000000.5\n# EOF\n")
    assert openmetrics.timestamps is not None
    assert float(openmetrics.timestamps[0]) == 1790000000.5
    assert read("m 1\n").timestamps is None


def test_carriage_returns_and_blank_lines() -> None:
    exposition = read('# TYPE m gauge\r\nm{a="b"} 1\r\n\r\n  \r\nn 2\r\n')
    assert exposition.values.tolist() == [1.0, 2.0]
    assert exposition.layout.types == {"m": "gauge"}


def test_created_companions_are_no_gauges() -> None:
    body = (
        "# TYPE c_total counter\nc_total 3\n# TYPE c_created gauge\nc_created 1.79e9\n"
        '# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\nh_created 1.79e9\n'
        "# TYPE iteration_tokens_total histogram\niteration_tokens_total_count 4\n"
        "iteration_tokens_total_created 1.79e9\n"
        "# TYPE kube_pod_created gauge\nkube_pod_created 1.6e9\n"
    )
    names = [sample.name for sample in read(body).layout.samples]
    assert names == [
        "c_total",
        "h_bucket",
        "h_sum",
        "h_count",
        "iteration_tokens_total_count",
        "kube_pod_created",
    ]


def test_repeated_families_are_all_read() -> None:
    body = '# TYPE m gauge\nm{a="1"} 1\n# TYPE m gauge\nm{a="2"} 2\nm{a="1"} 1\n'
    assert read(body).values.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"<!doctype html>\n<html><body>hello</body></html>\n", "an HTML or XML page"),
        (b'{"status": "ok"}\n', "JSON"),
        (b"[]", "JSON"),
        (b"\x0a\x1e\x0a\x04http\x12\x01\x00\x1a", "binary data"),
        (b"404 page not found\n", "other text"),
        (b"", "an empty body"),
        (b"\n\n", "an empty body"),
    ],
)
def test_a_body_that_is_no_exposition(body: bytes, found: str) -> None:
    exposition = ExpositionReader().read(body)
    assert exposition.layout.error is not None
    assert exposition.layout.error.startswith("expected a metrics exposition, found ")
    assert found in exposition.layout.error
    assert exposition.layout.samples == ()


def test_errors_of_a_large_wrong_body_are_counted_not_kept() -> None:
    errors = read("nonsense line\n" * 5000).layout.errors
    assert len(errors) == 101
    assert str(errors[-1]) == "4900 more lines could not be read"


def test_a_cut_body_is_an_error_unless_it_is_a_file() -> None:
    assert "cut off" in str(read("m 1\nn 12").layout.error)
    assert read("m 1\nn 12", complete=True).layout.error is None
    assert "# EOF" in str(read("m 1\n", "application/openmetrics-text; version=1.0.0").layout.error)
    assert read("m 1\n# EOF", "application/openmetrics-text; version=1.0.0").layout.error is None


def test_lines_after_eof_are_reported() -> None:
    exposition = read("m 1\n# EOF\nn 2\n# EOF\n")
    assert [error.line for error in exposition.layout.errors] == [2]
    assert exposition.values.tolist() == [1.0, 2.0]


def test_an_exemplar_is_no_value_whatever_the_content_type_says() -> None:
    line = 'h_bucket{le="1"} 8 # {trace_id="4bf92f35"} 0.31 1790000001.5\n'
    for content_type in (None, "text/plain", "application/openmetrics-text"):
        assert read(line + "# EOF\n", content_type).values.tolist() == [8.0]


def test_only_wanted_names_are_kept() -> None:
    reader = ExpositionReader(lambda name: name.startswith("vllm:"))
    exposition = reader.read(b"python_gc 1\nvllm:a 2\nvllm:b 3\nbroken{ 4\n")
    assert [sample.name for sample in exposition.layout.samples] == ["vllm:a", "vllm:b"]
    assert exposition.values.tolist() == [2.0, 3.0]
    assert len(exposition.layout.errors) == 1


def test_the_second_scrape_keeps_the_layout() -> None:
    body = (FIXTURES / "live" / "vllm-0.32-busy.prom").read_bytes()
    reader = ExpositionReader()
    first = reader.read(body)
    second = reader.read(body.replace(b"num_requests_running", b"num_requests_running"))
    assert second.layout is first.layout
    assert np.array_equal(second.values, first.values, equal_nan=True)


# --- against prometheus_client

NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True).map(lambda name: f"x{name}")
LABEL_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)
LABELS = st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3)
VALUES = st.one_of(
    st.floats(width=64).map(repr),
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1.7e+09", "-nan"]),
)


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    labels = draw(LABELS)
    comma = draw(st.sampled_from([",", ", "]))
    inner = comma.join(f'{name}="{escape(value)}"' for name, value in labels.items())
    braces = f"{{{inner}{draw(st.sampled_from(['', ',']))}}}" if labels else draw(st.sampled_from(["", "{}"]))
    blank = draw(st.sampled_from([" ", "  ", "\t"]))
    stamp = draw(st.sampled_from(["", "", "", " 1790000000123"]))
    return f"{draw(NAMES)}{braces}{blank}{draw(VALUES)}{stamp}"


BODIES = st.lists(
    st.one_of(sample_lines(), st.sampled_from(["", "# a comment", "# HELP x some help"])),
    min_size=1,
    max_size=12,
)


def oracle(text: str) -> list[tuple[str, tuple[tuple[str, str], ...], str]]:
    return sorted(
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(sample.value)))
        for family in text_families(text)
        for sample in family.samples
    )


def without_companions(rows: list[tuple[str, tuple[tuple[str, str], ...], str]]) -> list[object]:
    names = {row[0] for row in rows}
    endings = ("", "_total", "_count", "_sum", "_bucket")
    return [
        row
        for row in rows
        if not (row[0].endswith("_created") and any(row[0][: -len("_created")] + e in names for e in endings))
    ]


@settings(max_examples=150, deadline=None)
@given(BODIES)
def test_agrees_with_the_text_parser(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    exposition = read(text)
    if exposition.layout.error is None:
        assert exposition.layout.errors == ()
        assert sorted(as_table(exposition)) == without_companions(oracle(text))
    else:
        assert oracle(text) == []  # blank


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, LABELS, st.floats(allow_nan=False), st.sampled_from(["", " 1790000000.5"])),
        min_size=1,
        max_size=6,
        unique_by=lambda item: item[0],
    )
)
def test_agrees_with_the_openmetrics_parser(gauges: list[tuple[str, dict[str, str], float, str]]) -> None:
    lines = []
    for name, labels, value, stamp in gauges:
        inner = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
        lines.append(f"# TYPE {name} unknown\n{name}{{{inner}}} {value!r}{stamp}\n")
    text = "".join(lines) + "# EOF\n"
    exposition = read(text, "application/openmetrics-text; version=1.0.0")
    expected = [
        (
            sample.name,
            tuple(sorted(sample.labels.items())),
            repr(float(sample.value)),
            stamp_of(sample.timestamp),
        )
        for family in openmetrics_families(text)
        for sample in family.samples
    ]
    stamps = exposition.timestamps if exposition.timestamps is not None else np.full(len(gauges), np.nan)
    found = [(*row, repr(float(stamp))) for row, stamp in zip(as_table(exposition), stamps, strict=True)]
    assert sorted(without_companions(found)) == sorted(without_companions(expected))  # type: ignore[arg-type, type-var]


def stamp_of(timestamp: object) -> str:
    return repr(float(str(timestamp))) if timestamp is not None else "nan"


# --- the fast way equals the slow way


def same_exposition(a: Exposition, b: Exposition) -> bool:
    stamps = [np.nan_to_num(e.timestamps, nan=-1.0).tolist() if e.timestamps is not None else None for e in (a, b)]
    return a.layout == b.layout and as_table(a) == as_table(b) and stamps[0] == stamps[1]


MUTATIONS = (
    "value",
    "drop",
    "insert",
    "swap",
    "label",
    "comment",
    "break",
    "space",
    "type",
    "cut",
    "nan",
    "blank",
)


def mutate(lines: list[str], kind: str, rng: random.Random) -> list[str]:
    lines = list(lines)
    at = rng.randrange(len(lines))
    head = lines[at].rpartition(" ")[0]
    if kind == "value" and not lines[at].startswith("#"):
        lines[at] = f"{head} {rng.choice(['0', '1e300', '12.5', '-3', '7.0'])}"
    elif kind == "drop":
        del lines[at]
    elif kind == "insert":
        lines.insert(at, 'vllm:new{engine="0"} 4')
    elif kind == "swap":
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "label":
        lines[at] = lines[at].replace('engine="0"', 'engine="1"')
    elif kind == "comment":
        lines[at] = "# " + lines[at]
    elif kind == "break":
        lines[at] = lines[at] + rng.choice(["x", "_0", ' 5 "', "\t", " 1790000000000", "\u0665"])
    elif kind == "space":
        lines[at] = lines[at].replace(" ", "  ")
    elif kind == "type":
        lines[at] = lines[at].replace("gauge", "counter")
    elif kind == "cut":
        lines[-1] = lines[-1][: rng.randrange(1, len(lines[-1]) + 1)]
    elif kind == "nan":
        lines[at] = f"{head} {rng.choice(['NaN', '+Inf', 'nan', '1_0', '', ' 1'])}"
    elif kind == "blank":
        lines[at] = ""
    return lines


@pytest.mark.parametrize("wanted", [None, lambda name: name.startswith("vllm:")])
def test_the_fast_way_equals_the_slow_way_on_mutated_bodies(wanted: object) -> None:
    original = (FIXTURES / "live" / "vllm-0.32-busy.prom").read_text().split("\n")[30:150]
    rng = random.Random(7)
    reader = ExpositionReader(wanted)  # type: ignore[arg-type]
    lines = original
    fast = 0
    previous: Exposition | None = None
    for step in range(400):
        if step % 25 == 0:
            lines = original
        kind = rng.choice(MUTATIONS if rng.random() < 0.4 else ("value",))
        lines = mutate(lines, kind, rng)
        body = ("\n".join(lines) + ("" if kind == "cut" else "\n")).encode()
        found = reader.read(body)
        assert same_exposition(found, ExpositionReader(wanted).read(body)), (step, kind)  # type: ignore[arg-type]
        fast += previous is not None and found.layout is previous.layout
        previous = found
    assert fast > 50


@settings(max_examples=100, deadline=None)
@given(BODIES, BODIES, st.lists(VALUES, min_size=1))
def test_the_fast_way_equals_the_slow_way(first: list[str], second: list[str], values: list[str]) -> None:
    changed = [
        f"{line.rpartition(' ')[0]} {values[n % len(values)]}" if " " in line and line[0] != "#" else line
        for n, line in enumerate(first)
    ]
    reader = ExpositionReader()
    for lines in (first, changed, second, changed, first):
        body = ("\n".join(lines) + "\n").encode()
        assert same_exposition(reader.read(body), ExpositionReader().read(body))
