"""Every scenario of the library is complete and says the truth about something that is in it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from analyzers.codes import CODES
from analyzers.model import Layer
from fleetsim.events import CacheEvent, EngineEvent, Event, LoadEvent, NodeEvent, ReclaimEvent, TelemetryEvent
from fleetsim.library_table import document
from fleetsim.policies.registry import POLICIES
from fleetsim.scenario import Interval, Scenario, library, load_scenario, names
from fleetsim.score import score
from fleetsim.virtual.cold_start import suggested_s
from fleetsim.virtual.offered import Offered
from fleetsim.virtual.play import play
from fleetsim.virtual.world import World

ROOT = Path(__file__).resolve().parents[2]
NAMES = library()
ASKED_FOR = {
    "agentic-fan-out",
    "bursty-code",
    "canary-regression",
    "crash-30",
    "degraded-gpu-60",
    "degraded-gpu-80",
    "degraded-gpu-80-cancels-honoured",
    "degraded-gpu-90",
    "diurnal",
    "engine-hang",
    "grey-gpu",
    "hpa-fight",
    "idle-and-back",
    "load-growth",
    "long-context-kv",
    "low-priority-flood",
    "nested-retries",
    "noisy-neighbour",
    "prefix-cache-collapse",
    "prompt-drift",
    "slow-cold-start-surge",
    "spike-x3",
    "steady-state",
    "telemetry-outage-at-peak",
    "unschedulable-scale-up",
}
# Where a cause can be besides a replica.
PLACES = {"clients", "gateway", "cluster", "telemetry"}
# The controls: nothing is wrong with the fleet, so no cause is named unless it is the demand or the scrape.
CONTROLS = {"steady-state", "diurnal", "bursty-code", "prompt-drift", "load-growth", "telemetry-outage-at-peak"}
# Where scaling down is part of the question: nowhere else may a policy go below what the ordinary load needs.
MAY_SHRINK = {"steady-state", "diurnal", "idle-and-back", "telemetry-outage-at-peak"}
OUTCOMES = {"ok", "timeout", "rejected", "error", "abandoned", "unfinished"}
SHORT = 0.05  # of its time: a whole scenario in a minute


@pytest.fixture(params=NAMES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return load_scenario(str(request.param))


def replicas(scenario: Scenario) -> set[str]:
    serving = {f"engine-{i}" for i in range(scenario.engines)}
    return serving | {f"prefill-{i}" for i in range(scenario.prefill_engines)}


def shortened(scenario: Scenario, share: float) -> Scenario:
    """The same incidents in a share of the time; clients and engines keep their pace."""

    def sooner(event: Event) -> Event:
        changed = {"at_s": event.at_s * share}
        if isinstance(event, LoadEvent):
            changed["ramp_s"] = event.ramp_s * share
        return event.model_copy(update=changed)

    return scenario.model_copy(
        update={
            "duration_s": scenario.duration_s * share,
            "cold_start_s": scenario.cold_start_s * share,
            "trigger": Interval(start_s=scenario.trigger.start_s * share, end_s=scenario.trigger.end_s * share),
            "timeline": tuple(map(sooner, scenario.timeline)),
        }
    )


def test_every_incident_that_was_asked_for_is_there() -> None:
    assert set(NAMES) >= ASKED_FOR


def test_names_are_unique_over_both_folders_and_equal_the_files() -> None:
    assert [name for name, count in Counter(names()).items() if count > 1] == []
    assert [load_scenario(name).name for name in NAMES] == NAMES


def test_the_trigger_leaves_time_before_and_after(scenario: Scenario) -> None:
    patience = scenario.clients.timeout_s * (1 + scenario.clients.retries)
    assert scenario.trigger.start_s >= 120
    assert scenario.trigger.start_s < scenario.trigger.end_s
    assert scenario.trigger.end_s + 60 + patience + 60 <= scenario.duration_s


def test_the_timeline_is_in_order_and_inside_the_run(scenario: Scenario) -> None:
    times = [event.at_s for event in scenario.timeline]
    assert all(a <= b for a, b in pairwise(times))
    assert all(0 < t < scenario.duration_s for t in times)


def test_every_target_of_the_timeline_exists(scenario: Scenario) -> None:
    known = replicas(scenario)
    tenants = {tenant.name for tenant in scenario.tenants}
    nodes = -(-scenario.engines // scenario.cluster.replicas_per_node)
    for event in scenario.timeline:
        match event:
            case EngineEvent() | CacheEvent():
                assert event.targets == "all" or set(event.targets) <= known
            case ReclaimEvent():
                assert set(event.targets) <= set(scenario.cluster.spot)
            case TelemetryEvent():
                assert event.targets == "all" or set(event.targets) <= known | {"gateway", "dcgm"}
            case NodeEvent():
                assert event.node < nodes
            case LoadEvent():
                assert event.tenant is None or event.tenant in tenants
                assert event.fanout is None or scenario.workflow is not None
                assert event.shared_prefixes or scenario.traffic.prefixes is not None
    assert set(scenario.cluster.spot) <= known


def test_what_was_slowed_or_hung_is_let_go_again(scenario: Scenario) -> None:
    ill: set[str] = set()
    for event in scenario.timeline:
        if isinstance(event, EngineEvent):
            targets = replicas(scenario) if event.targets == "all" else set(event.targets)
            ill = ill | targets if event.kind in ("slow", "hang") else ill - targets
    assert ill == set()


def test_the_truth_is_in_the_terms_of_the_agent(scenario: Scenario) -> None:
    truth = scenario.truth
    assert set(truth.findings) <= set(CODES)
    assert set(truth.not_findings) <= set(CODES)
    assert not set(truth.findings) & set(truth.not_findings)
    assert truth.not_findings
    assert truth.layer is None or truth.layer in set(Layer)
    assert (truth.layer is None) == (not truth.where)
    assert set(truth.where) <= replicas(scenario) | PLACES


def test_a_control_names_no_engine_as_its_cause(scenario: Scenario) -> None:
    if scenario.name in CONTROLS:
        assert not set(scenario.truth.where) & replicas(scenario)
        assert not any(isinstance(event, EngineEvent | NodeEvent | ReclaimEvent) for event in scenario.timeline)


def test_every_move_says_why_and_when(scenario: Scenario) -> None:
    known = replicas(scenario)
    assert scenario.truth.wrong
    for move in (*scenario.truth.right, *scenario.truth.wrong):
        assert move.why
        assert move.until_s is None or move.from_s < move.until_s <= scenario.duration_s
        assert move.targets == "all" or (move.lever in ("weight", "drain") and set(move.targets) <= known)


def test_no_move_is_right_and_wrong_at_once(scenario: Scenario) -> None:
    for right in scenario.truth.right:
        until = scenario.duration_s if right.until_s is None else right.until_s
        targets = sorted(replicas(scenario)) if right.targets == "all" else right.targets
        for t in range(int(right.from_s), int(until)):
            for target in targets:
                clash = [w for w in scenario.truth.wrong if w.covers(t, right.lever, target, right.direction == "down")]
                assert clash == [], (scenario.name, t, right, clash)


def test_the_causes_of_engines_are_what_the_timeline_hits(scenario: Scenario) -> None:
    hit: set[str] = set()
    for event in scenario.timeline:
        match event:
            case EngineEvent():
                hit |= replicas(scenario) if event.targets == "all" else set(event.targets)
            case ReclaimEvent():
                hit |= set(event.targets)
            case NodeEvent():
                size = scenario.cluster.replicas_per_node
                hit |= {f"engine-{i}" for i in range(event.node * size, (event.node + 1) * size)}
    assert hit <= set(scenario.truth.where) or scenario.truth.layer == "client"


def test_the_cold_start_is_a_sum_that_the_model_suggests(scenario: Scenario) -> None:
    profile = scenario.hardware.profile
    usual = suggested_s(profile, image_s=30, compile_cached=True)
    slow = suggested_s(profile, "network", node_s=180, image_s=60)
    expected = slow if scenario.name == "slow-cold-start-surge" else usual
    assert scenario.cold_start_s == pytest.approx(expected, abs=0.6)


def test_nobody_may_scale_below_the_ordinary_load(scenario: Scenario) -> None:
    if scenario.name in MAY_SHRINK:
        assert scenario.min_replicas == 2
    else:
        ordinary = math.ceil(scenario.load * scenario.engines / 0.9)
        assert scenario.min_replicas >= min(scenario.engines, ordinary)


def test_another_writer_is_a_policy_there_is() -> None:
    writers = [s.other_writer.policy for s in map(load_scenario, NAMES) if s.other_writer is not None]
    assert writers
    assert set(writers) <= set(POLICIES)


def test_a_minute_of_it_loses_no_call(scenario: Scenario) -> None:
    short = shortened(scenario, SHORT)
    world = World(short)
    arrivals = sum(1 for _ in Offered(short, world.load * world.capacity_rps, short.duration_s, short.seed))
    world.run_until(short.duration_s)
    run = world.finish("none")
    assert {call.outcome for call in run.calls} <= OUTCOMES
    assert all((call.ended_at is None) == (call.outcome == "unfinished") for call in run.calls)
    assert all(call.outcome != "ok" or (call.attempts >= 1 and call.ttft_s is not None) for call in run.calls)
    assert sum(told.kind == "fault" for told in run.timeline) == len(short.timeline)
    if short.workflow is None:
        assert len(run.calls) == arrivals
    else:
        assert sum(task.calls for task in run.tasks) == len(run.calls)


@pytest.mark.parametrize(("name", "stays"), [("degraded-gpu-80", True), ("degraded-gpu-80-cancels-honoured", False)])
def test_whether_cancels_arrive_decides_whether_the_outage_stays(name: str, stays: bool) -> None:
    small = load_scenario(name).model_copy(update={"engines": 2, "duration_s": 720.0})
    found = score(play(small, "none"))
    assert found.goodput_ratio_before_trigger == pytest.approx(1.0, abs=0.02)
    assert found.goodput_ratio_after_trigger is not None
    assert found.goodput_ratio_after_trigger < 0.1 if stays else found.goodput_ratio_after_trigger > 0.95


def test_the_page_is_made_from_the_files() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    assert page == document([load_scenario(name) for name in NAMES]), "run python -m fleetsim.library_table"
