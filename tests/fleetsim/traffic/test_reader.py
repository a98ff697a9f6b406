import gzip
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traffic.arrival import Arrival
from fleetsim.traffic.reader import open_profile, open_trace, recognise
from fleetsim.traffic.rows import LONGEST_LINE, TraceError
from fleetsim.traffic.servegen import RateProfile

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
STAMP = "2023-11-16 18:17:03.9799600"
SERVEGEN = "timestamp_s,rate_req_per_s\n"
OWN = "t_s,prompt_tokens,output_tokens\n"
TENANTS = "t_s,prompt_tokens,output_tokens,tenant\n"
PREFIXES = "t_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"


def mooncake(timestamp: str = "0", prompt: str = "600", output: str = "5", ids: str = "[0, 1]") -> str:
    return f'{{"timestamp": {timestamp}, "input_length": {prompt}, "output_length": {output}, "hash_ids": {ids}}}\n'


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_azure_rows_count_from_the_first_and_keep_100_ns(tmp_path: Path) -> None:
    rows = f"{STAMP},4808,10\r\n2023-11-16 18:17:04.0319601,3180,8\r\n2023-11-16 18:18:04,7,1"
    arrivals = list(open_trace(written(tmp_path, AZURE + rows)))
    assert arrivals == [Arrival(0.0, 4808, 10), Arrival(0.0520001, 3180, 8), Arrival(60.02004, 7, 1)]


def test_mooncake_blocks_become_chunks_and_the_last_one_is_partial(tmp_path: Path) -> None:
    path = written(tmp_path, mooncake() + mooncake("2500", "1024", "7", "[0, 9]"))
    assert list(open_trace(path)) == [
        Arrival(0.0, 600, 5, ((0, 512), (1, 88))),
        Arrival(2.5, 1024, 7, ((0, 512), (9, 512))),
    ]


@pytest.mark.parametrize(
    ("content", "arrival"),
    [
        (OWN + "0.5,10,2\n", Arrival(0.5, 10, 2)),
        (TENANTS + "1e1,10,2,bücher\n", Arrival(10.0, 10, 2, (), "bücher")),
        (PREFIXES + "0,10,2,7,8\n", Arrival(0.0, 10, 2, ((7, 8),))),
        (PREFIXES + "0,10,2,,\n", Arrival(0.0, 10, 2)),
        (TENANTS.strip() + ",prefix_id,prefix_tokens\n0,10,2,a,7,8", Arrival(0.0, 10, 2, ((7, 8),), "a")),
        ("\ufeff" + OWN + "0,10,2\n", Arrival(0.0, 10, 2)),
    ],
)
def test_own_rows(tmp_path: Path, content: str, arrival: Arrival) -> None:
    assert list(open_trace(written(tmp_path, content))) == [arrival]


@pytest.mark.parametrize(
    ("content", "format"), [(AZURE, "azure"), (mooncake(), "mooncake"), (SERVEGEN, "servegen"), (OWN, "own")]
)
def test_the_first_line_tells_the_format(tmp_path: Path, content: str, format: str) -> None:
    assert recognise(written(tmp_path, content)) == format


def test_gzip_reads_like_the_file_in_it(tmp_path: Path) -> None:
    assert list(open_trace(written(tmp_path, gzip.compress((OWN + "0,10,2\n").encode())))) == [Arrival(0.0, 10, 2)]


FAULTS = [
    # content, place of the fault, what the message must say besides
    ("", "1: column 1", "an empty file"),
    ("hello\n", "1: column 1", "found 'hello'"),
    (b"\x7fELF\x02\x00\x00", "1: column 6", "a NUL byte"),
    ("t_s," + "x" * LONGEST_LINE, "1: column 1", "a longer one"),
    ("TIMESTAMP,ContextTokens\n", "1: column 3", "the end of the line"),
    ("TIMESTAMP,GeneratedTokens,ContextTokens\n", "1: column 2", "found 'GeneratedTokens'"),
    ("t_s,prompt,output\n", "1: column 2", "found 'prompt'"),
    ("t_s,prompt_tokens,output_tokens,tenant,extra\n", "1: column 5", "found 'extra'"),
    (AZURE, "2: column 1", "at least one row"),
    (AZURE + f"{STAMP},1,1\n{STAMP},1", "3: column 2 (ContextTokens)", "expected 3 columns, found 2"),
    (AZURE + f"{STAMP},1,1,1\n", "2: column 3 (GeneratedTokens)", "found 4"),
    (AZURE + f"{STAMP},1,1\n\n{STAMP},1,1\n", "3: column 1", "an empty line"),
    (AZURE + "16/11/2023 18:17,1,1\n", "2: column 1 (TIMESTAMP)", "found '16/11/2023 18:17'"),
    (AZURE + "2023-13-16 18:17:03,1,1\n", "2: column 1 (TIMESTAMP)", "found '2023-13-16 18:17:03'"),
    (AZURE + f"{STAMP},1,1\n2023-11-16 18:17:03.97,1,1\n", "3: column 1 (TIMESTAMP)", "sort the file"),
    (AZURE + f"{STAMP},1,0\n", "2: column 3 (GeneratedTokens)", "found '0'"),
    (AZURE + f"{STAMP},-5,1\n", "2: column 2 (ContextTokens)", "found '-5'"),
    (AZURE + f"{STAMP},NaN,1\n", "2: column 2 (ContextTokens)", "found 'NaN'"),
    (AZURE + f"{STAMP},1_0,1\n", "2: column 2 (ContextTokens)", "found '1_0'"),
    (AZURE + f"{STAMP},٣,1\n", "2: column 2 (ContextTokens)", "found '\\u0663'"),
    (AZURE + f"{STAMP},99999999999,1\n", "2: column 2 (ContextTokens)", "found '99999999999'"),
    (AZURE.encode() + STAMP.encode() + b",\xff,1\n", "2: column 2 (ContextTokens)", "found '\\udcff'"),
    (OWN + "-1,1,1\n", "2: column 1 (t_s)", "found '-1'"),
    (OWN + "nan,1,1\n", "2: column 1 (t_s)", "found 'nan'"),
    (OWN + "inf,1,1\n", "2: column 1 (t_s)", "found 'inf'"),
    (OWN + "1_0,1,1\n", "2: column 1 (t_s)", "found '1_0'"),
    (OWN + "2,1,1\n1,1,1\n", "3: column 1 (t_s)", "the row above (2.0)"),
    (OWN + "0,1,1.5\n", "2: column 3 (output_tokens)", "found '1.5'"),
    (OWN + "0,,1\n", "2: column 2 (prompt_tokens)", "found ''"),
    (TENANTS.encode() + b"0,1,1,\xff\n", "2: column 4 (tenant)", "printable"),
    (PREFIXES + "0,10,2,x,8\n", "2: column 4 (prefix_id)", "found 'x'"),
    (PREFIXES + "0,10,2,7,\n", "2: column 5 (prefix_tokens)", "found ''"),
    (PREFIXES + "0,10,2,7,11\n", "2: column 5 (prefix_tokens)", "at most the prompt's 10"),
    ('{"timestamp": 0, "input_len', "1: column 18", "a JSON object"),
    (mooncake() + "[1]\n", "2: column 1", "found '[1]'"),
    ('{"timestamp": ' + "[" * 100_000, "1: column 1", "a JSON object"),
    ('{"timestamp": ' + "9" * 5000 + "}", "1: column 1", "a JSON object"),
    ('{"timestamp": 0}\n', "1: column input_length", "only 'timestamp'"),
    (mooncake("-1"), "1: column timestamp", "found '-1'"),
    (mooncake("NaN"), "1: column timestamp", "found 'nan'"),
    (mooncake("Infinity"), "1: column timestamp", "found 'inf'"),
    (mooncake('"0"'), "1: column timestamp", "milliseconds"),
    (mooncake("true"), "1: column timestamp", "found 'True'"),
    (mooncake("5") + mooncake("4"), "2: column timestamp", "the row above (5)"),
    (mooncake(prompt="0"), "1: column input_length", "found '0'"),
    (mooncake(output="2.5"), "1: column output_length", "found '2.5'"),
    (mooncake(ids="[0]"), "1: column hash_ids", "expected 2 ids"),
    (mooncake(ids="null"), "1: column hash_ids", "found 'None'"),
    (mooncake(ids='[0, "1"]'), "1: column hash_ids", "whole numbers"),
    (gzip.compress(OWN.encode() + b"0,1,1\n" * 9)[:-12], "2: column 1", "a complete gzip file"),
]


@pytest.mark.parametrize(("content", "place", "says"), FAULTS, ids=range(len(FAULTS)))
def test_each_fault_names_file_line_and_column(tmp_path: Path, content: str | bytes, place: str, says: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path))
    assert str(caught.value).startswith(f"{path}:{place}")
    assert "column" in str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).isascii()


@pytest.mark.parametrize("name", ["", "not-there"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"expected a readable file, found .*: name a trace file") as caught:
        open_trace(tmp_path / name)
    assert caught.value.line is None


def test_the_header_is_checked_on_opening_and_later_rows_when_reached(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        open_trace(written(tmp_path, AZURE))
    stream = open_trace(written(tmp_path, OWN + "0,1,1\nx,1,1\n"))
    assert next(stream).t == 0
    with pytest.raises(TraceError, match=":3: column 1"):
        next(stream)


def test_a_named_format_must_be_the_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r":1: column 1: expected the header TIMESTAMP"):
        open_trace(written(tmp_path, OWN + "0,1,1\n"), "azure")


def test_a_rate_profile_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected arrivals, found a rate profile"):
        open_trace(written(tmp_path, SERVEGEN + "0,1\n600,2\n"))


@pytest.mark.parametrize(
    ("rows", "place", "says"),
    [
        ("0,1\n600,nan\n", "3: column 2 (rate_req_per_s)", "found 'nan'"),
        ("0,1\n600,-1\n", "3: column 2 (rate_req_per_s)", "found '-1'"),
        ("0,1\n0,1\n", "3: column 1 (timestamp_s)", "after the row above"),
        ("0,1\n600,1\n1500,1\n", "4: column 1 (timestamp_s)", "a multiple of 600.0"),
        ("0,1\n", "3: column 1", "a second window"),
        ("", "2: column 1", "at least one row"),
    ],
)
def test_faults_of_a_profile(tmp_path: Path, rows: str, place: str, says: str) -> None:
    path = written(tmp_path, SERVEGEN + rows)
    with pytest.raises(TraceError) as caught:
        open_profile(path)
    assert str(caught.value).startswith(f"{path}:{place}")
    assert says in str(caught.value)


PIECES = [
    AZURE.encode(), OWN.encode(), PREFIXES.encode(), SERVEGEN.encode(), mooncake().encode(), f"{STAMP},1,1\n".encode(),
    b"0,1,1\n", b"0,1,1,7,1\n", b"0,1\n600,2\n", b",", b"\n", b"\r", b'"', b"{}", b"nan", b"-1",
    b"\x1f\x8b", b"\0", b"\xff",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=6)), max_size=8).map(b"".join), st.booleans())
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_read_or_refused_with_their_place(content: bytes, packed: bool) -> None:
    with TemporaryDirectory() as folder:
        path = written(Path(folder), gzip.compress(content) if packed else content)
        for read in (open_trace, open_profile):
            try:
                result = read(path)
                times = [a.t for a in result] if not isinstance(result, RateProfile) else list(result.starts_s)
            except TraceError as error:
                assert error.line is not None
                assert error.column is not None
            else:
                assert times
                assert times == sorted(times)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with path.open("w") as file:
        file.write(OWN)
        file.writelines(f"{i},{i % 900 + 1},{i % 70 + 1}\n" for i in range(200_000))
    tracemalloc.start()
    try:
        count = sum(1 for _ in open_trace(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 200_000
    assert path.stat().st_size > 2_000_000
    assert peak < 1_000_000
