"""Every recorded body against a table made without our reader, and who is not claimed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.signals import compare, main
from collector.reading import TargetReader

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FIXTURES = ROOT / "tests" / "fixtures"
OURS = sorted([*FIXTURES.glob("live/vllm-*.prom"), *FIXTURES.glob("*.prom")])
RECORDED = sorted(
    [
        *SHARED.glob("live/vllm-*.prom"),
        *(path for name in ("vllm", "ray-vllm", "dcgm", "envoy") for path in SHARED.glob(f"scrapes/{name}*.prom")),
        *SHARED.glob("scrapes/generated/vllm-*.prom"),
    ]
)
FOREIGN = sorted(
    path
    for path in [
        *SHARED.glob("scrapes/*.prom"),
        *SHARED.glob("scrapes/generated/*.prom"),
        *SHARED.glob("live/*.prom"),
    ]
    if not path.name.startswith(("vllm", "ray-vllm", "dcgm", "envoy", "istio"))
)
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the workplace's recorded bodies are not here")
VLLM_RELEASES = {
    "0.8.5": "0.8",
    "0.9.2": "0.9-0.10",
    "0.11.0": "0.11",
    "0.15.1": "0.12-0.16",
    "0.20.2": "0.20-0.30",
    "0.28.0": "0.20-0.30",
    "0.33.0": "0.32 or newer",
}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_our_own_copies_equal_the_table(path: Path) -> None:
    one = compare(path)
    assert one.reading.error is None
    assert one.wrong == ()
    assert one.known == one.equal >= 20


@needs_shared
@pytest.mark.shared
def test_every_recorded_body_equals_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(RECORDED) > 100
    assert main([str(path) for path in RECORDED]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RECORDED) + 2
    assert lines[-1].endswith(" 0 wrong")
    assert all(line.endswith("-") for line in lines[1:-1])


@needs_shared
@pytest.mark.shared
def test_no_body_of_another_product_is_claimed() -> None:
    assert len(FOREIGN) > 20
    for path in FOREIGN:
        reading = TargetReader().read(path.read_bytes(), complete=True)
        assert reading.product is None, path.name
        assert reading.error is not None
        assert reading.signals == {}


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(("release", "found"), VLLM_RELEASES.items())
def test_releases_are_told_apart(release: str, found: str) -> None:
    body = (SHARED / "scrapes" / "generated" / f"vllm-{release}-registry.prom").read_bytes()
    assert TargetReader().read(body).version == found


@needs_shared
@pytest.mark.shared
def test_the_fast_way_keeps_the_values_over_a_recorded_series() -> None:
    reader = TargetReader("vllm")
    for path in sorted(SHARED.glob("live/vllm-0.32-overload-*.prom")):
        body = path.read_bytes()
        found, fresh = reader.read(body), TargetReader("vllm").read(body)
        for name, signal in fresh.signals.items():
            if signal.state.usable:
                assert str(found.signals[name]) == str(signal), (path.name, name)


def test_the_command_prints_counts() -> None:
    path = FIXTURES / "envoy-1.40.prom"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.signals", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "envoy-1.40.prom" in run.stdout
    with pytest.raises(SystemExit, match="2"):
        main([])
