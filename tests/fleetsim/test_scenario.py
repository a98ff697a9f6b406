from pathlib import Path

import pytest

from fleetsim.events import EngineEvent
from fleetsim.scenario import ScenarioError, load_scenario, load_wall_clock, names, parse_scenario

EXPECTED = {
    "crash",
    "decode-heavy",
    "decode-regression",
    "degraded-gpu",
    "hung-engine",
    "load-spike",
    "load-spike-mild",
    "load-spike-unschedulable",
    "prefill-heavy",
    "prompt-growth",
    "retry-storm",
    "retry-storm-no-abort",
    "retry-storm-two-slow",
    "steady",
}


def test_packaged_scenarios_are_all_there() -> None:
    assert set(names()) >= EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_packaged_scenario_is_valid_and_ends_as_it_began(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.truth
    assert scenario.trigger.end_s < scenario.duration_s
    for event in scenario.timeline:
        assert scenario.trigger.start_s <= event.at_s <= scenario.trigger.end_s
    # A fault is taken back; only a deploy stays.
    kinds = {e.kind for e in scenario.timeline if isinstance(e, EngineEvent)}
    assert not kinds or "recover" in kinds or kinds == {"deploy"}


def test_file_with_mistakes_names_them_all() -> None:
    document = {
        "name": "x",
        "about": "y",
        "load": -1,
        "timelin": [],
        "timeline": [{"at_s": 3, "kind": "melt"}, {"at_s": -1, "kind": "slow"}],
    }
    with pytest.raises(ScenarioError) as error:
        parse_scenario(document, "mine.yaml")
    for part in ("mine.yaml", "truth", "load", "timelin:", "timeline.0", "timeline.1.slow.at_s"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timeline": [{"at_s": 1, "kind": "hang", "targets": ["engine-9"]}]}, "engine-9"),
        ({"timeline": [{"at_s": 1, "kind": "deploy"}]}, "build"),
        ({"engines": 9}, "max_replicas"),
        ({"timeline": [{"at_s": 1, "kind": "reclaim", "targets": ["engine-0"]}]}, "cluster.spot"),
        ({"timeline": [{"at_s": 1, "kind": "load", "tenant": "batch"}]}, "expected a tenant"),
        (
            {
                "tenants": [{"name": "gold"}],
                "traffic": {"trace": "t.csv"},
                "timeline": [{"at_s": 1, "kind": "load", "tenant": "gold"}],
            },
            "expected load events for all of a trace",
        ),
        ({"timeline": [{"at_s": 1, "kind": "telemetry", "mode": "missing"}]}, "families"),
        ({"traffic": {"family": "azure-conv", "trace": "t.csv"}}, "either a trace or a family"),
    ],
)
def test_contradictions_are_found(change: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario({"name": "x", "about": "y", "truth": {"what": "z"}, **change}, "mine.yaml")


def test_mistakes_of_a_file_come_with_line_and_column(tmp_path: Path) -> None:
    head = "name: x\nabout: y\ntruth: {what: z}\nload: 0\n"
    text = head + "timeline:\n  - {at_s: 3, kind: load}\n  - {kind: slow, at_s: -1}\nfoo: 1\n"
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(str(file))
    for part in ("load (line 4, column 7)", "timeline.1.slow.at_s (line 7, column 24)", "foo (line 8, column 6)"):
        assert part in str(error.value)


def test_the_wall_clock_fleet_refuses_what_it_cannot_play(tmp_path: Path) -> None:
    assert load_wall_clock("retry-storm").virtual_only() == []
    with pytest.raises(ScenarioError, match=r"traffic.*inferostat simulate --scenario steady-state"):
        load_wall_clock("steady-state")


def test_unknown_name_and_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"'nope': use one of .*steady"):
        load_scenario("nope")
    with pytest.raises(ScenarioError, match=r"No such file"):
        load_scenario(str(tmp_path / "gone.yaml"))
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    with pytest.raises(ScenarioError, match="expected YAML"):
        load_scenario(str(broken))
