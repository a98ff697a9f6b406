"""Targets: from a URL, from a list, from a file_sd file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.model import TargetRole
from collector.sources.targets import FileTargets, StaticTargets, TargetError, parse_file_sd, target


@pytest.mark.parametrize(
    ("given", "role", "url", "address"),
    [
        ("10.0.0.1:8000", TargetRole.ENGINE, "http://10.0.0.1:8000/metrics", "10.0.0.1:8000"),
        ("http://gw:9901/", TargetRole.GATEWAY, "http://gw:9901/stats/prometheus", "gw:9901"),
        ("https://dcgm/m?x=1", TargetRole.GPU, "https://dcgm/m?x=1", "dcgm:443"),
        ("http://[::1]:8000", TargetRole.ENGINE, "http://[::1]:8000/metrics", "[::1]:8000"),
    ],
)
def test_a_target_from_what_people_write(given: str, role: TargetRole, url: str, address: str) -> None:
    made = target(given, role)
    assert (made.url, made.address, made.name) == (url, address, address)
    assert made.base_url + "/" == url[: len(made.base_url) + 1]


@pytest.mark.parametrize("given", ["", "http://", "ftp://host/metrics", "http://host:port", "http://h:99999"])
def test_what_is_no_target(given: str) -> None:
    with pytest.raises(TargetError, match="expected http://host:port"):
        target(given)


def test_an_unknown_product() -> None:
    with pytest.raises(TargetError, match="expected one of vllm"):
        target("h:1", product="vlm")


def test_static() -> None:
    one = target("h:1")
    assert StaticTargets([one]).targets() == (one,)
    assert StaticTargets([one]).warnings == ()


def test_file_sd_labels() -> None:
    document = [
        {
            "targets": ["127.0.0.1:9001"],
            "labels": {
                "__role__": "engine",
                "pool": "chat",
                "name": "engine-0",
                "gpus": "4",
                "build": "b1",
                "device": "GPU-0000",
            },
        },
        {"targets": ["127.0.0.1:9400"], "labels": {"__role__": "gpu"}},
        {
            "targets": ["127.0.0.1:9901"],
            "labels": {"__role__": "gateway", "__metrics_path__": "/stats/prometheus", "cluster": "llm"},
        },
        {"targets": ["a:1", "b:2"], "labels": {"name": "same", "__scheme__": "https"}},
    ]
    engine, gpu, gateway, first, second = parse_file_sd(json.dumps(document))
    assert (engine.name, engine.pool, engine.gpus, engine.role) == ("engine-0", "chat", 4, TargetRole.ENGINE)
    assert engine.labels == {
        "pool": "chat", "name": "engine-0", "gpus": "4", "build": "b1", "device": "GPU-0000"
    }  # fmt: skip
    assert (gpu.role, gpu.url) == (TargetRole.GPU, "http://127.0.0.1:9400/metrics")
    assert (gateway.url, gateway.labels["cluster"]) == ("http://127.0.0.1:9901/stats/prometheus", "llm")
    assert [first.name, second.name, second.url] == ["a:1", "b:2", "https://b:2/metrics"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("[{", "expected a JSON list"),
        ('{"targets": []}', "found dict"),
        ("[5]", "group 0: expected"),
        ('[{"targets": ["h:1"]}, {"targets": "h:1"}]', "group 1: expected"),
        ('[{"targets": ["h:1"], "labels": {"gpus": 4}}]', "labels of text to text"),
        ('[{"targets": ["h:1"], "labels": {"gpus": "four"}}]', "whole number of gpus"),
        ('[{"targets": ["h:1"], "labels": {"__role__": "router"}}]', "known __role__"),
        ('[{"targets": ["h"], "labels": {"__scheme__": "gopher"}}]', "expected http://host:port"),
    ],
)
def test_what_is_no_targets_file(body: str, found: str) -> None:
    with pytest.raises(TargetError, match=found):
        parse_file_sd(body)


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    discovery = FileTargets(path)
    assert discovery.targets() == ()
    assert "expected a readable targets file" in discovery.warnings[0]

    path.write_text('[{"targets": ["a:1"]}]')
    assert [one.name for one in discovery.targets()] == ["a:1"]
    assert discovery.warnings == ()
    assert discovery.targets() is discovery.targets()

    new = tmp_path / "new.json"
    new.write_text('[{"targets": ["b:2"]}]')
    new.replace(path)
    assert [one.name for one in discovery.targets()] == ["b:2"]

    path.write_text("nonsense")
    assert [one.name for one in discovery.targets()] == ["b:2"]
    assert "1 target of the last good one kept" in discovery.warnings[0]
    assert [one.name for one in discovery.targets()] == ["b:2"]
    assert discovery.warnings

    path.unlink()
    assert [one.name for one in discovery.targets()] == ["b:2"]
    path.write_text("[]")
    assert discovery.targets() == ()
    assert discovery.warnings == ()
