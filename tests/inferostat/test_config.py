"""inferostat.yaml: every mistake at once with its path, paths beside the file, and the example that ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from actuators.model import Lever
from inferostat.config import Config, ConfigError, load, parse
from inferostat.config_problems import models_in
from inferostat.planner import Mode

EXAMPLE = Path(__file__).parents[2] / "deploy" / "inferostat.example.yaml"

GOOD = """
pools:
  a:
    targets:
      - {url: "http://engine-0:8000", name: e0}
      - {url: "http://engine-1:8000", name: e1}
      - {url: "http://envoy:9901", role: gateway, name: gw, cluster: llm}
    levers:
      breaker: {backend: edge}
      scale: {backend: fleet}
backends:
  edge: {kind: envoy, admin_url: "http://envoy:9901", clusters: {a: llm}}
  fleet: {kind: embedded, admin_url: "http://fleet:8080"}
"""

Spoil = Callable[[Any], object]


def _target(number: int, **changes: object) -> Spoil:
    return lambda raw: raw["pools"]["a"]["targets"][number].update(changes)


def _lever(name: str, **changes: object) -> Spoil:
    return lambda raw: raw["pools"]["a"]["levers"][name].update(changes)


# What each mistake does to a good document, the path it must be told with, and what must be said of it.
MISTAKES: dict[str, tuple[Spoil, str]] = {
    "interval": (lambda raw: raw.update(interval="5 parsecs"), "a duration such as"),
    "mode": (lambda raw: raw.update(mode="advize"), "did you mean advise?"),
    "retentoin": (lambda raw: raw.update(retentoin=5), "did you mean retention?"),
    "traces": (lambda raw: raw.update(traces="otpl"), "did you mean otlp?"),
    "api.port": (lambda raw: raw.update(api={"port": 70000}), "65535"),
    "scrape.jitter": (lambda raw: raw.update(scrape={"jitter": 1.5}), "less than 1"),
    "pools.a.targets[0].url": (_target(0, url="engine-0:8000"), "http://host:port"),
    "pools.a.targets[1].gpus": (_target(1, gpus=-1), "found -1"),
    "pools.a.targets[1].build": (_target(1, build=12), "put it in quotes"),
    "pools.a.targets[1].nmae": (_target(1, nmae="x"), "did you mean name?"),
    "pools.a.targets[2].cluster": (_target(2, cluster=None), "the gateway's name for this pool's upstream"),
    "pools.a.targets[2].name": (_target(2, name="e1"), "also at pools.a.targets[1]"),
    "pools.a.slo.ttft": (lambda raw: raw["pools"]["a"].update(slo={"ttft": 0}), "greater than 0"),
    "pools.a.clients.timeout": (lambda raw: raw["pools"]["a"].update(clients={"timeout": True}), "a duration"),
    "pools.a.levers.breaker.backend": (_lever("breaker", backend="egde"), "did you mean edge?"),
    "pools.a.levers.breaker.minimum": (_lever("breaker", minimum=9, maximum=3), "at most the maximum 3"),
    "pools.a.levers.scale.backend": (_lever("scale", backend="edge"), "one that moves scale"),
    "pools.a.levers.brake": (
        lambda raw: raw["pools"]["a"]["levers"].update(brake={"backend": "edge"}),
        "did you mean breaker?",
    ),
    "pools.b": (lambda raw: raw["pools"].update(b={}), "neither `targets` nor `targets_file`"),
    "backends.fleet.admin_rul": (
        lambda raw: raw["backends"]["fleet"].update(admin_rul="http://x"),
        "did you mean admin_url?",
    ),
    "backends.third.kind": (lambda raw: raw["backends"].update(third={"kind": "envy"}), "found 'envy'"),
}


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_the_good_document_is_good() -> None:
    config = parse(GOOD)
    assert config.mode is Mode.ADVISE
    assert config.pools["a"].levers.keys() == {Lever.BREAKER, Lever.SCALE}


@given(st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1))
def test_every_mistake_is_told_at_once_with_its_path(paths: set[str]) -> None:
    raw = yaml.safe_load(GOOD)
    for path in paths:
        MISTAKES[path][0](raw)
    problems = _problems(yaml.safe_dump(raw))
    for path in paths:
        mine = [problem for problem in problems if problem.startswith(f"{path}: ")]
        assert len(mine) == 1, (path, problems)
        assert "expected" in mine[0] and "found" in mine[0] and MISTAKES[path][1] in mine[0]
    assert len(problems) == len(paths)


def test_a_key_given_twice_is_a_mistake_with_both_lines() -> None:
    text = "mode: act\npools:\n  a: {targets_file: t.json}\n  a: {targets_file: u.json}\nmode: advise\n"
    assert sorted(_problems(text)) == [
        "mode: expected each key once, found it in lines 1 and 5; remove one",
        "pools.a: expected each key once, found it in lines 3 and 4; remove one",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a mapping at the top, found nothing"),
        ("- a\n", "a mapping at the top, found list"),
        ("pools: [", "expected YAML"),
        ("pools: !!python/object:os.system {}", "expected YAML"),
        ("pools: {}", "pools"),
        ("{}", "pools: expected a value, found none"),
        ("pools: {a: 3}", "pools.a"),
        ("pools: {a: {targets: 3}}", "pools.a.targets"),
        ("pools: {a: {targets: [3]}}", "pools.a.targets[0]"),
        ("pools: &p {a: *p}", "pools.a"),
        ("a: &a [*a]\npools: {a: {targets_file: x}}", "a: expected a known key"),
        ("pools: {a: {targets_file: x}}\ninterval: .inf", "interval"),
        ("pools: {a: {targets_file: x}}\nbackends: {e: {}}", "backends.e.kind"),
        ("pools: {a: {targets_file: x}}\nbackends: [e]", "backends"),
        ("a: 2026-99-99", "expected YAML"),
        ("[" * 5000, "expected YAML"),
        ("? [a, b]\n: c", "expected YAML"),
    ],
)
def test_what_is_no_configuration_at_all(text: str, said: str) -> None:
    assert any(said in problem for problem in _problems(text))


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_an_explained_error(text: str) -> None:
    try:
        parse(text)
    except ConfigError as error:
        assert error.problems


def test_relative_paths_count_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (folder / "inferostat.yaml").write_text(
        "pools: {a: {targets_file: targets.json, targets: [{url: 'http://e:1', bearer_token_file: m.token}]}}\n"
        "backends: {edge: {kind: envoy, admin_url: 'http://x', clusters: {}, eds_path: ../envoy/eds.json}}\n"
        "api: {token_file: /run/token}\n"
    )
    config = load(folder / "inferostat.yaml")
    assert config.pools["a"].targets_file == folder / "targets.json"
    assert config.pools["a"].targets[0].bearer_token_file == folder / "m.token"
    assert Path(config.backends["edge"].options["eds_path"]) == folder / "../envoy/eds.json"
    assert config.api.token_file == Path("/run/token")
    assert config.journal == folder / "inferostat.sqlite"


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent.yaml", tmp_path, binary):
        with pytest.raises(ConfigError, match="give another one with -c"):
            load(path)


def test_the_example_parses_and_moves_nothing() -> None:
    config = load(EXAMPLE)
    assert config.mode is Mode.ADVISE
    policy = config.policy()
    modes = {policy.pool(pool).mode_of(lever) for pool, item in config.pools.items() for lever in item.levers}
    assert modes == {Mode.ADVISE}


def test_the_example_shows_every_key_there_is() -> None:
    """A key that the example names neither as a value nor in a comment is one that nobody finds."""
    text = EXAMPLE.read_text("utf-8")
    models: set[type[BaseModel]] = {Config, *_models(Config)}
    names = {name for model in models for name in model.model_fields}
    assert {name for name in names if f"{name}:" not in text} == set()


def _models(root: type[BaseModel]) -> set[type[BaseModel]]:
    """Every model below one."""
    below = {model for field in root.model_fields.values() for model in models_in(field.annotation)}
    return below | {deeper for model in below for deeper in _models(model)}
