"""Faults of reading that operators reported: cases C01, C02, C04, C08, C13, C15, C21 and their kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.model import Censor, Histogram, Level, Quantile, SignalState
from collector.reading import Reading, TargetReader

CASES = Path(__file__).parents[1] / "fixtures" / "cases"


def read(name: str, content_type: str | None = None) -> Reading:
    return TargetReader().read((CASES / name).read_bytes(), content_type)


def histogram(reading: Reading, name: str) -> Histogram:
    value = reading.signals[name].value
    assert isinstance(value, Histogram)
    return value


@pytest.mark.parametrize("name", ["C01.prom", "C01.old.prom"])
def test_c01_a_renamed_gauge_is_one_value(name: str) -> None:
    reading = read(name)
    assert reading.signals["kv_cache_usage"].value == 0.62
    assert reading.signals["requests_waiting"].value == 3
    assert not reading.warnings


def test_c02_per_token_and_per_request_are_two_signals() -> None:
    reading = read("C02.prom")
    itl, tpot = histogram(reading, "itl"), histogram(reading, "tpot")
    assert (itl.count, itl.mean()) == (1200, 0.030)
    assert (tpot.count, tpot.mean()) == (60, pytest.approx(0.040))
    assert not reading.parse_errors


def test_c02_the_old_name_is_per_token() -> None:
    body = (CASES / "C02.prom").read_text().replace("inter_token_latency_seconds", "time_per_output_token_seconds")
    reading = TargetReader().read(body.encode())
    assert histogram(reading, "itl").count == 1200
    assert histogram(reading, "tpot").count == 60


@pytest.mark.parametrize("content_type", ["application/openmetrics-text; version=1.0.0", "text/plain", None])
def test_c04_openmetrics_whatever_the_content_type_says(content_type: str | None) -> None:
    reading = read("C04.prom", content_type)
    assert reading.signals["prompt_tokens"].value == 1234
    ttft = histogram(reading, "ttft")
    assert (ttft.count, ttft.sum, ttft.counts.tolist()) == (10, 4.2, [8.0, 10.0])
    assert not reading.warnings
    assert "1790000000" not in str(reading.series)


def test_c08_blanks_are_unknown() -> None:
    reading = read("C08.prom")
    rows = reading.rows[Level.DEVICE]
    for name in ("gpu_util", "fb_used", "sm_active", "power", "temperature"):
        assert rows.cell("GPU-bbbb", name).state is SignalState.INVALID
    known = {name: rows.cell("GPU-aaaa", name).known for name in rows.columns}
    assert {name: number for name, number in known.items() if number is not None} == {
        "gpu_util": pytest.approx(0.87),
        "fb_used": 71234 * 1024**2,
        "sm_active": 0.81,
        "power": 512.5,
        "temperature": 64,
    }
    assert reading.signals["gpu_util"].value == pytest.approx(0.87)
    assert reading.signals["gpu_util"].reason == "1 known of 2"
    # job_sm_active_percent is no name of the exporter's: it feeds no signal at all
    assert not any(one["metric"] == "job_sm_active_percent" for one in reading.series)


@pytest.mark.parametrize(
    ("field", "value", "signal"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", "1.6", "sm_active"),
        ("DCGM_FI_DEV_GPU_UTIL", "101", "gpu_util"),
        ("DCGM_FI_DEV_GPU_TEMP", "151", "temperature"),
        ("DCGM_FI_DEV_POWER_USAGE", "5001", "power"),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.40737488355328e+16", "sm_active"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9223372036854775794", "energy"),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "2147483633", "pcie_replays"),
        ("DCGM_FI_DEV_GPU_UTIL", "NaN", "gpu_util"),
    ],
)
def test_c08_out_of_range_is_unknown(field: str, value: str, signal: str) -> None:
    reading = TargetReader().read(f'{field}{{gpu="0",UUID="GPU-a"}} {value}\n'.encode())
    assert reading.signals[signal].state is SignalState.INVALID
    assert reading.signals[signal].value is None


def test_c13_one_bad_line_is_quarantined() -> None:
    body = (CASES / "C13.prom").read_bytes() + b'vllm:num_requests_running{model_name="m"} 9\n'
    reading = TargetReader().read(body)
    assert [error.split(":")[0] for error in reading.parse_errors] == ["line 3"]
    assert reading.signals["requests_running"].value == 9


def test_c15_twins_collapse_or_conflict() -> None:
    reading = read("C15.prom")
    assert reading.signals["requests_running"].value == 4
    waiting = reading.signals["requests_waiting"]
    assert (waiting.value, waiting.state) == (None, SignalState.CONFLICT)
    assert waiting.reason == "conflicting duplicates 2 vs 9"
    assert any("conflicting duplicates 2 vs 9" in warning for warning in reading.warnings)
    assert [one["signal"] for one in reading.series].count("requests_running") == 1


def test_c21_a_quantile_in_the_top_bucket_is_censored() -> None:
    e2e = histogram(read("C21.prom"), "e2e")
    p50, p95, p99 = (e2e.quantile(q) for q in (0.5, 0.95, 0.99))
    assert p50 == Quantile(60.0, Censor.NONE)
    assert p95 == p99 == Quantile(60.0, Censor.ABOVE)
    assert e2e.mean() == 140
    assert p99 is not None
    assert p99.exceeds(45) is True
    assert p99.exceeds(120) is None


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (Quantile(60, Censor.ABOVE), Quantile(60, Censor.ABOVE), None),
        (Quantile(60, Censor.ABOVE), Quantile(30, Censor.ABOVE), None),
        (Quantile(60, Censor.ABOVE), Quantile(45), 1),
        (Quantile(60, Censor.ABOVE), Quantile(70), None),
        (Quantile(0.3, Censor.BELOW), Quantile(0.3, Censor.BELOW), None),
        (Quantile(0.3, Censor.BELOW), Quantile(5), -1),
        (Quantile(0.3, Censor.BELOW), Quantile(60, Censor.ABOVE), -1),
        (Quantile(5), Quantile(4), 1),
        (Quantile(4), Quantile(4), 0),
    ],
)
def test_c21_comparing_censored_quantiles(one: Quantile, other: Quantile, verdict: int | None) -> None:
    assert one.compare(other) == verdict
    assert other.compare(one) == (None if verdict is None else -verdict)
