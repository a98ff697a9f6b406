"""Own metrics: what is exposed, what goes away, and that docs/metrics.md tells the truth both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from actuators.model import Lever, Status
from analyzers.model import Analysis
from collector.model import Frame, Table, Topology
from inferostat.api.view import CycleView
from inferostat.present import CycleFacts
from inferostat.telemetry import Telemetry
from tests.inferostat.incident import FAULT_FROM, POOL, START, Incident

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
STORM = FAULT_FROM + 30

Labels = tuple[tuple[str, str], ...]


def samples(registry: CollectorRegistry) -> dict[str, dict[Labels, float]]:
    """Sample name -> labels -> value, by the reference parser."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def families(registry: CollectorRegistry) -> dict[str, tuple[str, set[str]]]:
    """Exposed name -> type and label names; counters under the name that queries use."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    return found


def documented() -> Mapping[str, tuple[str, set[str]]]:
    rows = re.findall(r"^\| `(inferostat_\w+)` \| (\w+) \|([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def facts(view: CycleView) -> CycleFacts:
    return CycleFacts(view.at, view.frame, view.analysis, view.readings)


def telemetry(now: float = START) -> Telemetry:
    return Telemetry("1.2.3", "act", lambda: now)


def stormy(now: float = START + STORM) -> Telemetry:
    own = telemetry(now)
    own.configuration_loaded(True, START)
    own.phase_done("sense", 0.02)
    incident = Incident()
    for view in incident.cycles(STORM):
        last = view
    hbm = replace(last.analysis.measures[0], name="hbm_compute_ratio", value=2.0)
    analysis = replace(last.analysis, measures=(*last.analysis.measures, hbm))
    own.cycle_done("ok", replace(facts(last), analysis=analysis))
    return own


def test_document_and_exposition_agree_both_ways() -> None:
    exposed = families(stormy().registry)
    assert documented() == exposed


def test_unknown_measure_is_an_absent_series_not_a_zero() -> None:
    own = telemetry()
    view = Incident().cycle(0)  # capacity is not learnt yet
    own.cycle_done("ok", facts(view))
    found = samples(own.registry)
    assert "inferostat_pool_capacity_rate" not in found
    assert (("name", "capacity_mu"), ("scope", f"pool/{POOL}")) not in found["inferostat_measure"]
    assert found["inferostat_pool_vulnerability"] == {(("pool", POOL),): 2.4}


def test_series_of_a_vanished_endpoint_disappear() -> None:
    own = stormy()
    before = samples(own.registry)
    assert before["inferostat_target_up"][(("role", "engine"), ("target", "engine-3"))] == 0
    assert any(("scope", "endpoint/engine-3") in labels for labels in before["inferostat_finding_active"])
    empty = Table.empty((), ())
    own.cycle_done("ok", CycleFacts(START + 200, Frame(START + 200, empty, empty, empty, Topology()), Analysis(START)))
    after = samples(own.registry)
    assert [
        name for name, series in after.items() if any("engine-3" in value for labels in series for _, value in labels)
    ] == []
    assert "inferostat_target_up" not in after


def test_a_lever_without_a_limit_has_no_series() -> None:
    own = telemetry()
    own.cycle_done("ok", facts(Incident().cycle(0)))
    levers = samples(own.registry)["inferostat_lever_value"]
    assert {dict(labels)["lever"] for labels in levers} == {"scale", "weight"}
    assert samples(stormy().registry)["inferostat_lever_value"][(("lever", "breaker"), ("target", POOL))] == 48


def test_findings_count_onsets_not_cycles() -> None:
    own = telemetry()
    incident = Incident()
    for view in incident.cycles(FAULT_FROM + 30):
        own.cycle_done("ok", facts(view))
    found = samples(own.registry)["inferostat_findings_total"]
    assert found[(("severity", "critical"), ("slug", "retry-storm"))] == 1
    assert found[(("severity", "info"), ("slug", "vulnerable"))] == 1


def test_scrape_age_grows_while_the_loop_stands_still() -> None:
    now = [START + 0.0]
    own = Telemetry("1", "act", lambda: now[0])
    own.cycle_done("ok", facts(Incident().cycle(0)))
    key = (("role", "engine"), ("target", "engine-0"))
    first = samples(own.registry)["inferostat_target_scrape_age_seconds"][key]
    now[0] += 30
    assert samples(own.registry)["inferostat_target_scrape_age_seconds"][key] == first + 30


def test_counters_exist_at_zero_before_anything_happens() -> None:
    found = samples(telemetry().registry)
    assert set(found["inferostat_actions_total"].values()) == {0.0}
    assert len(found["inferostat_actions_total"]) == len(Lever) * len(Status)
    assert found["inferostat_cycles_total"][(("result", "failed"),)] == 0


def test_counters_count() -> None:
    own = telemetry()
    own.action_done(Lever.BREAKER, Status.APPLIED)
    own.reverted(Lever.SCALE)
    own.cycle_done("failed", None, overran=True)
    own.paused(True)
    own.configuration_loaded(True, 5.0)
    own.configuration_loaded(False, 9.0)
    own.mode("observe")
    found = samples(own.registry)
    assert found["inferostat_actions_total"][(("lever", "breaker"), ("status", "applied"))] == 1
    assert found["inferostat_reverts_total"][(("lever", "scale"),)] == 1
    assert found["inferostat_cycles_total"][(("result", "failed"),)] == 1
    assert found["inferostat_cycle_overruns_total"] == {(): 1}
    assert found["inferostat_paused"] == {(): 1}
    assert found["inferostat_config_last_reload_successful"] == {(): 0}
    assert found["inferostat_config_last_reload_success_timestamp_seconds"] == {(): 5}
    assert found["inferostat_mode_info"] == {(("mode", "observe"),): 1}


def test_signal_states_are_sparse_and_complete() -> None:
    found = samples(stormy().registry)["inferostat_signal_state"]
    assert found[(("level", "endpoint"), ("state", "stale"), ("target", "engine-3"))] == 6
    assert found[(("level", "endpoint"), ("state", "known"), ("target", "engine-0"))] == 6
    assert all(value > 0 for value in found.values())
