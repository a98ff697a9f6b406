"""Scenario files: a fleet, its clients, and what happens to them when. The format of
fleetsim/scenarios/*.yaml.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError, model_validator

from fleetsim.events import EngineEvent, Event, LoadEvent, ReclaimEvent
from fleetsim.places import place
from fleetsim.settings import (
    Clients,
    Cluster,
    Gateway,
    Hardware,
    Lengths,
    Seconds,
    Serving,
    Slo,
    Strict,
    Tenant,
    Traffic,
    Workflow,
)
from fleetsim.truth import Truth


class Interval(Strict):
    """The trigger, in seconds from the clients' start: what `before`, `during` and `after` refer to."""

    start_s: Seconds
    end_s: Seconds


class OtherWriter(Strict):
    """Another controller over the same replicas: the peer policy of that name, from `from_s` on."""

    policy: str
    from_s: Seconds = 0.0


class Scenario(Strict):
    """One incident, or the absence of one. `truth` says what a diagnosis should find."""

    name: str
    about: str
    truth: Truth
    seed: int = 1
    load: Annotated[float, Field(gt=0)] = 0.8  # offered first attempts as a share of measured capacity
    engines: Annotated[int, Field(ge=1)] = 4
    prefill_engines: Annotated[int, Field(ge=0)] = 0  # in front of the others, which then only decode
    min_replicas: Annotated[int, Field(ge=1)] = 1
    max_replicas: Annotated[int, Field(ge=1)] = 8
    cold_start_s: Seconds = 20.0
    unschedulable: bool = False  # new replicas are accepted but never placed
    duration_s: Annotated[float, Field(gt=0)] = 180.0
    trigger: Interval = Interval(start_s=30.0, end_s=75.0)
    builds: dict[str, str] = Field(default_factory=dict)
    hardware: Hardware = Hardware()
    cluster: Cluster = Cluster()
    workload: Lengths = Lengths()
    serving: Serving = Serving()
    gateway: Gateway = Gateway()
    clients: Clients = Clients()
    slo: Slo = Slo()
    tenants: tuple[Tenant, ...] = ()
    workflow: Workflow | None = None
    traffic: Traffic = Traffic()
    other_writer: OtherWriter | None = None
    timeline: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        names = {f"engine-{i}" for i in range(self.engines)}
        for event in self.timeline:
            if isinstance(event, EngineEvent) and event.targets != "all" and not set(event.targets) <= names:
                raise ValueError(f"expected targets out of {sorted(names)}, found {event.targets}")
            if isinstance(event, ReclaimEvent) and not set(event.targets) <= set(self.cluster.spot):
                raise ValueError(
                    f"expected reclaimed replicas out of cluster.spot {list(self.cluster.spot)}, found {event.targets}"
                )
            if isinstance(event, LoadEvent) and event.tenant is not None:
                if self.traffic.trace is not None:
                    raise ValueError(
                        f"expected load events for all of a trace, found tenant {event.tenant!r}: remove it"
                    )
                tenants = [tenant.name for tenant in self.tenants]
                if event.tenant not in tenants:
                    raise ValueError(f"expected a tenant of the scenario {tenants}, found {event.tenant!r}")
        if self.max_replicas < self.engines:
            raise ValueError(f"expected max_replicas of at least {self.engines}, found {self.max_replicas}")
        return self

    def virtual_only(self) -> list[str]:
        """What of this scenario the wall-clock fleet does not have; empty if it can play it."""
        plain = Scenario(name=self.name, about=self.about, truth=self.truth)
        sections = ("cluster", "gateway", "tenants", "workflow", "traffic", "other_writer", "prefill_engines")
        found = [name for name in sections if getattr(self, name) != getattr(plain, name)]
        found += [f"hardware.{n}" for n in ("kv_tokens", "jitter") if getattr(self.hardware, n)]
        found += [f"serving.{n}" for n in ("max_waiting", "ingress_s", "token_s") if getattr(self.serving, n)]
        found += [f"clients.{n}" for n in ("app_retries", "throttle_k") if getattr(self.clients, n)]
        played = [e for e in self.timeline if isinstance(e, EngineEvent) or (isinstance(e, LoadEvent) and e.wall_clock)]
        kinds = {event.kind for event in self.timeline if event not in played}
        return found + [f"timeline kind {kind}" for kind in sorted(kinds)]


class ScenarioError(ValueError):
    """A scenario cannot be read; the message names every problem with its path."""


def parse_scenario(document: Any, origin: str, root: yaml.Node | None = None) -> Scenario:
    """Validate a document; ScenarioError lists all problems at once, with their places in the text at `root`."""
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(_told(e["loc"], e["msg"], root) for e in error.errors())
        raise ScenarioError(f"expected a scenario in {origin}, found {problems}: correct the file") from error


def _told(path: tuple[str | int, ...], message: str, root: yaml.Node | None) -> str:
    where = "" if root is None else f" ({place(root, path)})"
    return f"{'.'.join(map(str, path)) or 'document'}{where}: {message}"


FOLDERS = ("scenarios", "library")  # three minutes for both faces; twenty minutes for virtual time


def names() -> list[str]:
    """The scenarios that come with the package."""
    files = [f for folder in FOLDERS for f in resources.files("fleetsim").joinpath(folder).iterdir()]
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


def library() -> list[str]:
    """The scenarios of the library: twenty minutes in virtual time, with ground truth."""
    folder = resources.files("fleetsim").joinpath("library")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load_scenario(name_or_path: str) -> Scenario:
    """A packaged scenario by name, or a file by path (anything that ends in .yaml or .yml)."""
    if name_or_path.endswith((".yaml", ".yml")):
        try:
            text = Path(name_or_path).read_text()
        except OSError as error:
            raise ScenarioError(
                f"expected a readable scenario file, found {error}: name one of {', '.join(names())}"
            ) from error
    else:
        text = _packaged(name_or_path)
    try:
        document = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ScenarioError(f"expected YAML in {name_or_path}, found {error}: correct the file") from error
    return parse_scenario(document, name_or_path, root)


def load_wall_clock(name_or_path: str) -> Scenario:
    """A scenario that the wall-clock fleet can play; ScenarioError says what it lacks for the others."""
    scenario = load_scenario(name_or_path)
    lacking = scenario.virtual_only()
    if lacking:
        raise ScenarioError(
            f"expected a scenario for the embedded fleet, found {name_or_path} with {', '.join(lacking)}: "
            f"play it with `inferostat simulate --scenario {name_or_path}`"
        )
    return scenario


def _packaged(name: str) -> str:
    for folder in FOLDERS:
        file = resources.files("fleetsim").joinpath(folder, f"{name}.yaml")
        if name in names() and file.is_file():
            return file.read_text()
    raise ScenarioError(f"expected a scenario, found {name!r}: use one of {', '.join(names())}")
