from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.scenario import Scenario
from fleetsim.traffic.arrival import Arrival
from fleetsim.traffic.rows import TraceError
from fleetsim.virtual.courses import Course
from fleetsim.virtual.offered import CHUNK_TOKENS, Offered

TRACE = "t_s,prompt_tokens,output_tokens\n" + "".join(f"{5 + 2 * i},{100 + i},{10 + i}\n" for i in range(10))


def offered(base_rps: float = 20.0, duration_s: float = 200.0, seed: int = 1, **scenario: Any) -> Offered:
    given = {"name": "x", "about": "x", "truth": {"what": "x"}, "duration_s": duration_s, **scenario}
    return Offered(Scenario.model_validate(given), base_rps, duration_s, seed)


def load(at_s: float, **fields: Any) -> dict[str, Any]:
    return {"at_s": at_s, "kind": "load", **fields}


def rate(arrivals: list[Arrival], start: float, end: float) -> float:
    return sum(start <= a.t < end for a in arrivals) / (end - start)


def test_uniform_poisson_traffic_at_the_base_rate() -> None:
    arrivals = list(offered(base_rps=100.0))
    assert rate(arrivals, 0, 200) == pytest.approx(100, rel=0.03)
    assert all(a.t <= b.t for a, b in pairwise(arrivals)) and arrivals[-1].t < 200
    gaps = np.diff([a.t for a in arrivals])
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1, abs=0.05)
    assert {300, 700} <= {a.prompt_tokens for a in arrivals} <= set(range(300, 701))
    assert {(a.prefix, a.tenant) for a in arrivals} == {((), "")}


def test_a_seed_is_a_traffic() -> None:
    assert list(offered()) == list(offered()) != list(offered(seed=2))


def test_another_load_does_not_change_what_the_nth_asks_for() -> None:
    calm, storm = offered(), offered(base_rps=35.0, timeline=[load(50, factor=3.0)])
    lengths = [[a[1:] for a in islice(iter(o), 2000)] for o in (calm, storm)]
    assert lengths[0] == lengths[1]


def test_load_events_replace_each_other_and_ramp() -> None:
    events = [load(50, factor=3.0), load(100, factor=0.0), load(120, factor=2.0, ramp_s=40.0)]
    arrivals = list(offered(base_rps=100.0, timeline=events))
    expected = {(0, 50): 100, (50, 100): 300, (120, 140): 50, (140, 160): 150, (160, 200): 200}
    for (start, end), wanted in expected.items():
        assert rate(arrivals, start, end) == pytest.approx(wanted, rel=0.06), (start, end)
    assert rate(arrivals, 100, 120) == 0


def test_a_change_begins_from_where_a_ramp_had_got_to() -> None:
    course = Course([(10.0, 3.0, 40.0), (30.0, 0.0, 10.0)])
    assert [course.at(t) for t in (9.9, 10.0, 20.0, 30.0, 35.0, 40.0)] == pytest.approx([1.0, 1.0, 1.5, 2.0, 1.0, 0.0])


def test_longer_prompts_and_beginnings_that_are_no_longer_alike() -> None:
    events = [load(100, prompt_scale=2.0, shared_prefixes=False)]
    plain = list(offered(traffic={"prefixes": {"groups": 4, "share": 0.5}}))
    changed = list(offered(traffic={"prefixes": {"groups": 4, "share": 0.5}}, timeline=events))
    for before, after in zip(plain, changed, strict=True):
        late = before.t >= 100
        assert after.prompt_tokens == before.prompt_tokens * (2 if late else 1)
        assert after.prefix == (() if late else before.prefix)


def test_shorter_prompts_keep_no_more_of_their_beginning_than_they_have() -> None:
    for arrival in offered(traffic={"prefixes": {"share": 1.0}}, timeline=[load(0, prompt_scale=0.3)]):
        assert sum(tokens for _, tokens in arrival.prefix) <= arrival.prompt_tokens


def test_prompts_of_a_group_begin_alike_and_others_do_not() -> None:
    arrivals = list(offered(traffic={"prefixes": {"groups": 4, "share": 0.5}}))
    assert len({a.prefix[0] for a in arrivals}) == 4
    longest = {a.prefix[0]: a.prefix for a in sorted(arrivals, key=lambda a: len(a.prefix))}
    for arrival in arrivals:
        assert arrival.prefix == longest[arrival.prefix[0]][: len(arrival.prefix)]
        shared = sum(tokens for _, tokens in arrival.prefix)
        assert arrival.prompt_tokens / 2 - CHUNK_TOKENS < shared <= arrival.prompt_tokens / 2


def test_tenants_have_their_shares_lengths_beginnings_and_load_events() -> None:
    tenants = [
        {"name": "gold", "share": 3, "workload": {"prompt_tokens": [10, 20], "output_tokens": [1, 2]}},
        {"name": "tin", "share": 1},
    ]
    plain = list(offered(100.0, tenants=tenants, traffic={"prefixes": {"share": 1.0}}))
    spiked = list(offered(100.0, tenants=tenants, timeline=[load(100, factor=4.0, tenant="tin")]))
    assert rate([a for a in plain if a.tenant == "gold"], 0, 200) == pytest.approx(75, rel=0.05)
    assert max(a.prompt_tokens for a in plain if a.tenant == "gold") <= 20
    keys = {n: {k for a in plain if a.tenant == n for k, _ in a.prefix} for n in ("gold", "tin")}
    assert keys["tin"] and not keys["gold"] & keys["tin"]
    tin, gold = ([a for a in spiked if a.tenant == n] for n in ("tin", "gold"))
    assert rate(tin, 100, 200) == pytest.approx(100, rel=0.05) and rate(tin, 0, 100) == pytest.approx(25, rel=0.1)
    assert [a.t for a in gold] == [a.t for a in plain if a.tenant == "gold"]


def test_a_day_swings_around_the_same_mean() -> None:
    daily = {"rate": "diurnal", "swing": 0.5, "period_s": 400.0}
    arrivals = list(offered(100.0, duration_s=600.0, traffic=daily))
    assert rate(arrivals, 0, 600) == pytest.approx(100, rel=0.03)
    assert rate(arrivals, 80, 120) / rate(arrivals, 280, 320) == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("family", ["azure-conv", "azure-code", "mooncake-conversation"])
def test_families_bring_lengths_and_bursts(family: str) -> None:
    bursty = list(offered(50.0, traffic={"family": family, "arrivals": "bursty"}))
    smooth = list(offered(50.0, traffic={"family": family}))
    assert rate(smooth, 0, 200) == pytest.approx(50, rel=0.05)
    assert np.mean([a.prompt_tokens for a in smooth]) > 1000
    dispersion = [
        np.var(c) / np.mean(c) for c in (np.bincount([int(a.t) for a in b], minlength=200) for b in (bursty, smooth))
    ]
    assert dispersion[1] < 1.5 and (dispersion[0] > 4) == (family == "azure-code")
    assert any(a.prefix for a in smooth) == (family == "mooncake-conversation")


def test_a_trace_is_played_on_a_new_clock_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    arrivals = list(offered(2.0, duration_s=12.0, traffic={"trace": str(path)}))
    assert [a.t for a in arrivals] == pytest.approx([0.5 * i for i in range(24)])
    assert [a.prompt_tokens for a in arrivals] == [100 + i % 10 for i in range(24)]


def test_load_events_bend_a_traces_clock(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    events = [load(4, factor=2.0, prompt_scale=2.0), load(8, factor=0.0)]
    traffic, tenants = {"trace": str(path)}, [{"name": "gold", "share": 1}, {"name": "tin", "share": 1}]
    arrivals = list(offered(2.0, duration_s=12.0, traffic=traffic, timeline=events, tenants=tenants))
    assert [rate(arrivals, *span) for span in ((0, 4), (4, 8), (8.2, 12))] == pytest.approx([2, 4, 0], abs=0.3)
    assert {a.prompt_tokens >= 200 for a in arrivals if a.t > 4.1} == {True}
    assert {a.tenant for a in arrivals} == {"gold", "tin"}


def test_a_broken_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE + "nonsense,1,1\n")
    with pytest.raises(TraceError, match="csv:12: column 1"):
        list(offered(traffic={"trace": str(path)}))


def test_fan_out_follows_the_events() -> None:
    events = [load(50, fanout=9), load(100, factor=2.0)]
    traffic = offered(workflow={"steps": 2, "fanout": 3}, timeline=events)
    assert [traffic.fanout(t) for t in (0.0, 49.9, 50.0, 99.0, 100.0)] == [3, 3, 9, 9, 3]
    assert offered().fanout(10.0) == 1


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5), st.sampled_from([0.0, 0.5, 20.0])), max_size=6),
    st.lists(st.floats(0, 200), min_size=1, max_size=10),
)
def test_a_course_is_the_same_for_one_time_and_for_many(
    changes: list[tuple[float, float, float]], times: list[float]
) -> None:
    course = Course(sorted(changes, key=lambda change: change[0]))
    one = [course.at(t) for t in times]
    assert one == pytest.approx(course.over(np.array(times)).tolist(), rel=1e-9, abs=1e-12)
    assert all(0 <= value <= course.peak + 1e-12 for value in one)
