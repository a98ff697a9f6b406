"""Scenario files: a fleet, its clients, and what happens to them when. The format of
fleetsim/scenarios/*.yaml.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fleetsim.timing import Degradation, Profile, load_profile
from fleetsim.workload import Workload

Seconds = Annotated[float, Field(ge=0)]
Factor = Annotated[float, Field(gt=0)]
Length = Annotated[int, Field(ge=1)]
FaultKind = Literal["slow", "hang", "crash", "recover", "deploy"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(Strict):
    """What befalls engines: the body of POST /admin/faults, and an entry of a timeline."""

    kind: FaultKind
    targets: list[str] | Literal["all"] = "all"
    g: Factor = 1.0  # the whole step's time
    g_decode: Factor = 1.0  # its decode part
    g_prefill: Factor = 1.0  # what prefill adds
    xid: Annotated[int, Field(ge=0)] | None = None  # the GPU error a crash leaves behind
    build: str | None = None  # the build a deploy rolls out

    @model_validator(mode="after")
    def _deploy_names_a_build(self) -> Fault:
        if (self.kind == "deploy") != (self.build is not None):
            raise ValueError("expected `build` with kind deploy and only there")
        return self

    @property
    def degradation(self) -> Degradation:
        return Degradation(self.g, self.g_decode, self.g_prefill)


class EngineEvent(Fault):
    at_s: Seconds


class LoadEvent(Strict):
    """The clients change: `factor` times the base rate, prompts `prompt_scale` times as long."""

    at_s: Seconds
    kind: Literal["load"]
    factor: Annotated[float, Field(ge=0)] = 1.0
    prompt_scale: Factor = 1.0


Event = Annotated[EngineEvent | LoadEvent, Field(discriminator="kind")]


class Interval(Strict):
    """The trigger, in seconds from the clients' start: what `before`, `during` and `after` refer to."""

    start_s: Seconds
    end_s: Seconds


class Lengths(Strict):
    prompt_tokens: tuple[Length, Length] = (300, 700)
    output_tokens: tuple[Length, Length] = (100, 200)

    @property
    def workload(self) -> Workload:
        return Workload(self.prompt_tokens, self.output_tokens)


class Hardware(Strict):
    model: str = "Llama-3.1-70B bf16"
    gpu: str = "H100"
    gpus_per_replica: int = 4
    price_usd_per_gpu_hour: Annotated[float, Field(ge=0)] = 2.95

    @property
    def profile(self) -> Profile:
        return load_profile(self.model, self.gpu, self.gpus_per_replica)


class Serving(Strict):
    """Switches of the engines' servers; see fleetsim.server.ServingOptions."""

    abort_on_disconnect: bool = True
    headers_at_first_token: bool = True
    stream_interval: Length = 8


class Clients(Strict):
    """Clients that behave like the OpenAI SDK; `timeout_s` is for a stream's or an answer's first byte."""

    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    stream: bool = False
    retries: Annotated[int, Field(ge=0)] = 2


class Scenario(Strict):
    """One incident, or the absence of one. `truth` says what a diagnosis should find."""

    name: str
    about: str
    truth: str
    seed: int = 1
    load: Annotated[float, Field(gt=0)] = 0.8  # offered first attempts as a share of measured capacity
    engines: Annotated[int, Field(ge=1)] = 4
    max_replicas: Annotated[int, Field(ge=1)] = 8
    cold_start_s: Seconds = 20.0
    unschedulable: bool = False  # new replicas are accepted but never placed
    duration_s: Annotated[float, Field(gt=0)] = 180.0
    trigger: Interval = Interval(start_s=30.0, end_s=75.0)
    builds: dict[str, str] = {}
    hardware: Hardware = Hardware()
    workload: Lengths = Lengths()
    serving: Serving = Serving()
    clients: Clients = Clients()
    timeline: list[Event] = []

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        names = {f"engine-{i}" for i in range(self.engines)}
        for event in self.timeline:
            if isinstance(event, EngineEvent) and event.targets != "all" and not set(event.targets) <= names:
                raise ValueError(f"expected targets out of {sorted(names)}, found {event.targets}")
        if self.max_replicas < self.engines:
            raise ValueError(f"expected max_replicas of at least {self.engines}, found {self.max_replicas}")
        return self


class ScenarioError(ValueError):
    """A scenario cannot be read; the message names every problem with its path."""


def parse_scenario(document: Any, origin: str) -> Scenario:
    """Validate a document; ScenarioError lists all problems at once."""
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors())
        raise ScenarioError(f"expected a scenario in {origin}, found {problems}: correct the file") from error


def names() -> list[str]:
    """The scenarios that come with the package."""
    folder = resources.files("fleetsim").joinpath("scenarios")
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
    elif name_or_path in names():
        text = resources.files("fleetsim").joinpath("scenarios", f"{name_or_path}.yaml").read_text()
    else:
        raise ScenarioError(f"expected a scenario, found {name_or_path!r}: use one of {', '.join(names())}")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"expected YAML in {name_or_path}, found {error}: correct the file") from error
    return parse_scenario(document, name_or_path)
