"""HBM over compute, XID events, dollars."""

from __future__ import annotations

import pytest

from analyzers.model import Analysis, PoolSettings, Scope, ScopeKind, Severity, Slo
from tests.analyzers.frames import Loop, Row, frame, histogram, slugs, topology

POOL = Scope(ScopeKind.POOL, "default")
ENDPOINT = Scope(ScopeKind.ENDPOINT, "e")


def gpu(rows: list[Row]) -> list[Analysis]:
    loop = Loop()
    where = topology(("e",), devices={"g": "e"})
    return [loop.tick(frame(float(t), {"e": {}}, devices={"g": row}, where=where)) for t, row in enumerate(rows)]


def test_ratio_crosses_one_between_decode_and_prefill() -> None:
    decode = gpu([{"dram_active": 0.7, "tensor_active": 0.2}] * 5)[-1]
    prefill = gpu([{"dram_active": 0.3, "tensor_active": 0.8}] * 5)[-1]
    assert decode.measure("hbm_compute_ratio", ENDPOINT) == pytest.approx(3.5)
    assert prefill.measure("hbm_compute_ratio", POOL) == pytest.approx(0.375)
    assert decode.find("memory-bound", POOL) and prefill.find("compute-bound", POOL)


def test_fallbacks_are_named_and_idle_has_no_ratio() -> None:
    found = gpu([{"mem_copy_util": 0.6, "gpu_util": 0.3}] * 5)[-1].find("memory-bound")
    assert found is not None and found.evidence[0].why == "mem_copy_util over gpu_util" and found.confidence < 0.9
    idle = gpu([{"dram_active": 0.001, "tensor_active": 0.0}] * 5)[-1]
    assert idle.measure("hbm_compute_ratio", POOL) is None and not idle.findings
    assert gpu([{}] * 5)[-1].measure("hbm_compute_ratio", POOL) is None


def test_sticky_xid_from_before_is_no_event_and_a_device_class_one_asks_for_a_drain() -> None:
    assert not gpu([{"xid": 31.0}] * 20)[-1].findings
    found = gpu([{"xid": 0.0}] * 5 + [{"xid": 79.0}] * 5)[-1].find("gpu-fault")
    assert found is not None and found.severity is Severity.CRITICAL and found.since == 5
    assert found.advice[0].lever == "drain" and "operator" in found.advice[0].text


def test_success_per_dollar_is_bounded_by_the_marginals() -> None:
    loop = Loop(settings=PoolSettings(slo=Slo(ttft_s=1.0, tpot_s=0.1), price_usd_per_gpu_hour=3.0))
    where = topology(("a", "warming"), gpus=2)
    for t in range(1, 40):
        row = {
            "requests_by_finish_reason.stop": 2.0 * t,
            "requests_by_finish_reason.abort": 1.0 * t,
            "ttft": histogram([0.5] * (8 * t) + [4.0] * (2 * t)),
            "tpot": histogram([0.05] * (9 * t) + [0.4] * t),
        }
        last = loop.tick(frame(float(t), {"a": row, "warming": {}}, where=where))
    cost = last.measure("cost_usd_per_hour", POOL)
    assert cost == pytest.approx(12.0)  # the warming replica costs as much
    # 80 percent within TTFT and 90 within TPOT: at least 70 and at most 80 percent within both.
    assert last.measure("success_per_dollar", POOL) == pytest.approx(2.0 * 0.7 * 3600 / 12)
    assert last.measure("success_per_dollar_upper", POOL) == pytest.approx(2.0 * 0.8 * 3600 / 12)


def test_without_latencies_success_is_unknown_and_not_zero() -> None:
    loop = Loop()
    for t in range(1, 40):
        last = loop.tick(frame(float(t), {"a": {"requests_by_finish_reason.stop": 2.0 * t}}))
    assert last.measure("success_per_dollar", POOL) is None
    assert last.measure("finished_rate", POOL) == pytest.approx(2.0)
    assert "success-regression" not in slugs(last)
