import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.events import TelemetryEvent
from fleetsim.virtual.exporters import DeviceExporter
from fleetsim.virtual.telemetry import Feed, ScrapeRefused, Telemetry, alter_body
from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet

TTFT = "vllm:time_to_first_token_seconds"


def event(at_s: float, mode: str, **fields: Any) -> TelemetryEvent:
    return TelemetryEvent.model_validate({"at_s": at_s, "kind": "telemetry", "mode": mode, **fields})


def telemetry(fleet: Fleet, *events: TelemetryEvent) -> Telemetry:
    devices = DeviceExporter(fleet.simulation, fleet.pool)
    devices.start()
    return Telemetry(fleet.pool, devices, lambda now: f"envoy_now {now}\n", events)


def scrapes(feed: Feed[int], until: int) -> list[int | None]:
    """What a scraper gets each second of a target that tells the time."""

    def at(now: int) -> int | None:
        try:
            return feed.read(float(now), lambda: now)
        except ScrapeRefused:
            return None

    return [at(now) for now in range(until)]


def negative(answer: int, _: TelemetryEvent) -> int:
    return -answer


def test_feed_without_events_tells_what_is() -> None:
    assert scrapes(Feed([], negative), 3) == [0, 1, 2]


def test_feed_refuses_from_its_event_on_until_it_is_well() -> None:
    assert scrapes(Feed([event(2, "refused"), event(4, "well")], negative), 6) == [0, 1, None, None, 4, 5]


def test_stale_feed_repeats_what_it_said_last() -> None:
    assert scrapes(Feed([event(2, "stale"), event(4, "well")], negative), 6) == [0, 1, 1, 1, 4, 5]
    assert scrapes(Feed([event(0, "stale")], negative), 3) == [0, 0, 0]


def test_lagging_feed_says_what_was_so_long_ago() -> None:
    assert scrapes(Feed([event(3, "lag", lag_s=2), event(6, "well")], negative), 8) == [0, 1, 2, 1, 2, 3, 6, 7]


def test_lag_longer_than_anything_kept_gives_the_oldest() -> None:
    assert scrapes(Feed([event(2, "lag", lag_s=10)], negative), 5) == [0, 1, 0, 0, 0]


def test_lag_keeps_no_more_than_it_needs() -> None:
    feed = Feed([event(900, "lag", lag_s=5)], negative)
    scrapes(feed, 800)
    assert len(feed._kept) <= 6


@pytest.mark.parametrize("mode", ["missing", "nan"])
def test_feed_alters_while_families_are_gone(mode: str) -> None:
    assert scrapes(Feed([event(1, mode, families=("a",)), event(3, "well")], negative), 4) == [0, -1, -2, 3]


def test_later_event_of_a_target_takes_the_place_of_the_earlier() -> None:
    feed = Feed([event(1, "refused"), event(2, "missing", families=("a",))], negative)
    assert scrapes(feed, 4) == [0, None, -2, -3]


def families(body: str) -> set[str]:
    return {f.name for f in text_string_to_metric_families(body)}


def test_missing_family_is_gone_with_all_its_series_and_nan_keeps_them() -> None:
    fleet = Fleet()
    plain = telemetry(fleet).body("engine-0", 0.0)
    without = alter_body(plain, event(0, "missing", families=(TTFT, "vllm:num_requests_waiting")))
    assert families(plain) - families(without) == {TTFT, "vllm:num_requests_waiting"}
    assert "vllm:num_requests_waiting_by_reason" in families(without)
    blank = alter_body(plain, event(0, "nan", families=(TTFT,)))
    assert families(blank) == families(plain)
    values = {s.name: s.value for f in text_string_to_metric_families(blank) if f.name == TTFT for s in f.samples}
    assert set(values) == {f"{TTFT}_{part}" for part in ("bucket", "sum", "count")}
    assert all(math.isnan(value) for value in values.values())
    assert blank.count("NaN") == plain.count(TTFT) - 2  # all but HELP and TYPE


def test_bodies_by_name_and_by_address() -> None:
    fleet = Fleet()
    source = telemetry(fleet)
    fleet["engine-1"].server.offer(attempt())
    fleet.run(1)
    assert source.body("engine-0", 1.0) == source.body("10.0.0.1:8000", 1.0) != source.body("engine-1", 1.0)
    assert source.body("gateway", 1.0) == source.body("10.1.0.1:9901", 1.0) == "envoy_now 1.0\n"
    assert "DCGM_FI_PROF_DRAM_ACTIVE" in source.body("dcgm", 1.0)
    with pytest.raises(LookupError, match="engine-9"):
        source.body("engine-9", 1.0)


def test_who_does_not_listen_refuses_and_a_hung_engine_answers() -> None:
    fleet = Fleet()
    source = telemetry(fleet)
    fleet.pool.scale(3)
    fleet.crash("engine-0")
    fleet["engine-1"].server.hang(True)
    fleet.run(1)
    for name in ("engine-0", "engine-2"):
        with pytest.raises(ScrapeRefused, match="connection refused"):
            source.body(name, 1.0)
    fleet["engine-1"].server.offer(attempt())
    assert "vllm:num_requests_running" in source.body("engine-1", 1.0)


def test_crashed_engine_is_refused_even_where_bodies_are_stale() -> None:
    fleet = Fleet()
    source = telemetry(fleet, event(0, "stale"))
    source.body("engine-0", 0.0)
    fleet.crash("engine-0")
    with pytest.raises(ScrapeRefused):
        source.body("engine-0", 0.0)


def test_events_hit_their_targets_only() -> None:
    fleet = Fleet()
    source = telemetry(fleet, event(5, "refused", targets=["engine-0", "gateway", "dcgm"]))
    fleet.run(6)
    for name in ("engine-0", "gateway", "dcgm"):
        with pytest.raises(ScrapeRefused):
            source.body(name, 6.0)
    assert source.body("engine-1", 6.0)


def test_stale_body_is_the_same_body_again() -> None:
    fleet = Fleet()
    source = telemetry(fleet, event(2, "stale", targets=["engine-0"]), event(4, "well", targets=["engine-0"]))
    fleet["engine-0"].server.offer(attempt(output_tokens=1000))
    bodies = []
    for now in (1.0, 2.0, 3.0, 4.0):
        fleet.run(1)
        bodies.append(source.body("engine-0", now))
    assert bodies[0] == bodies[1] == bodies[2] != bodies[3]


def test_targets_carry_the_labels_of_the_wall_clock_fleet() -> None:
    fleet = Fleet(unschedulable=True)
    fleet.pool.scale(3)
    fleet.crash("engine-1")
    labels = {"__role__": "engine", "pool": "default", "gpus": "4", "build": "b1"}
    assert telemetry(fleet).targets() == [
        {
            "targets": ["10.0.0.1:8000"],
            "labels": {**labels, "__state__": "ready", "name": "engine-0", "device": "GPU-0000"},
        },
        {
            "targets": ["10.0.0.2:8000"],
            "labels": {**labels, "__state__": "crashed", "name": "engine-1", "device": "GPU-0001"},
        },
        {"targets": ["10.1.0.2:9400"], "labels": {"__role__": "gpu", "pool": "default"}},
        {
            "targets": ["10.1.0.1:9901"],
            "labels": {
                "__role__": "gateway",
                "__metrics_path__": "/stats/prometheus",
                "cluster": "llm",
                "pool": "default",
            },
        },
    ]
