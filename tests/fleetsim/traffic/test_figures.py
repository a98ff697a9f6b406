import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traffic.__main__ import main
from fleetsim.traffic.arrival import Arrival
from fleetsim.traffic.figures import measure


@given(
    st.lists(st.tuples(st.floats(0, 400), st.integers(1, 60), st.integers(1, 9)), min_size=2, max_size=60).map(sorted)
)
@settings(deadline=None, max_examples=60)
def test_one_pass_equals_numpy(rows: list[tuple[float, int, int]]) -> None:
    found = measure(Arrival(*row) for row in rows)
    times = np.array([row[0] for row in rows]) - rows[0][0]
    seconds = np.bincount(times.astype(int))
    assert found.requests == len(rows)
    assert found.duration_s == pytest.approx(times[-1])
    assert found.dispersion_1s == pytest.approx(seconds.var() / seconds.mean())
    assert found.peak_minute == np.bincount((times // 60).astype(int)).max() / 60
    for spread, at in ((found.prompt, 1), (found.output, 2)):
        lengths = [row[at] for row in rows]
        assert spread.mean == pytest.approx(np.mean(lengths))
        assert spread.p50 == pytest.approx(np.percentile(lengths, 50))
        assert spread.p99 == pytest.approx(np.percentile(lengths, 99))


def test_reuse_counts_leading_blocks_only() -> None:
    def prompt(*keys: int, last: int = 512) -> Arrival:
        return Arrival(0.0, 512 * (len(keys) - 1) + last, 1, (*((key, 512) for key in keys[:-1]), (keys[-1], last)))

    # 3 new; 2 of 3 seen; a seen block after a new one is no prefix; all 3 seen, the partial one too
    stream = [prompt(1, 2, 3), prompt(1, 2, 4, last=9), prompt(5, 2), prompt(1, 2, 4, last=9)]
    assert measure(iter(stream)).block_reuse == 5 / 11


def test_chunks_of_any_size_are_counted_in_blocks() -> None:
    """700 shared tokens are one whole block of 512."""
    first = Arrival(0.0, 1000, 1, ((1, 700), (2, 300)))
    second = Arrival(1.0, 1100, 1, ((1, 700), (3, 400)))
    assert measure(iter([first, second])).block_reuse == 1 / 5


def test_what_is_not_there_is_not_zero() -> None:
    single = measure(iter([Arrival(5.0, 10, 2)]))
    assert (single.mean_rate, single.block_reuse, single.duration_s) == (None, None, 0.0)
    with pytest.raises(ValueError, match="expected at least one arrival"):
        measure(iter([]))


def test_the_command_prints_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["azure-conv", "-o", "json", "--duration", "600", "--seed", "3"]) == 0
    first = capsys.readouterr().out
    document = json.loads(first)
    assert (document["schema_version"], document["source"], document["seed"]) == (1, "azure-conv", 3)
    assert document["prompt"]["mean"] == pytest.approx(1155, rel=0.1)
    assert main(["azure-conv", "-o", "json", "--duration", "600", "--seed", "3"]) == 0
    assert capsys.readouterr().out == first


def test_the_command_prints_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "own.csv"
    trace.write_text("t_s,prompt_tokens,output_tokens\n0,10,2\n4,20,4\n")
    assert main([str(trace)]) == 0
    out = capsys.readouterr().out
    assert "mean_rate            0.5\n" in out
    assert "prompt.mean          15\n" in out
    assert "block_reuse          unknown" in out
    trace.write_text("timestamp_s,rate_req_per_s\n0,10\n60,20\n")
    assert main([str(trace), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_rate"] == 15


def test_the_command_fails_with_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "own.csv"
    trace.write_text("t_s,prompt_tokens,output_tokens\n0,10,0\n")
    assert main([str(trace)]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert f"{trace}:2: column 3 (output_tokens)" in streams.err
    assert main(["burstgpt"]) == 2
    assert "or a family: azure-code" in capsys.readouterr().err
    assert main(["azure-code", "--duration", "nan"]) == 2
    assert "expected a duration" in capsys.readouterr().err
