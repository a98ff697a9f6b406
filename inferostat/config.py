"""inferostat.yaml: its models, and one error list with the path of every mistake in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from actuators.model import Lever
from analyzers.model import ClientBehaviour, PoolSettings, Slo
from inferostat.planner.model import Mode
from inferostat.planner.policy import (
    DEFAULT_LEVERS,
    LeverPolicy,
    Policy,
    PoolPolicy,
    RoutingPolicy,
    ScalingPolicy,
    StormPolicy,
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class ConfigError(Exception):
    """The configuration cannot be used. `problems`: one line a mistake, each with its path in the file."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source = source
        self.problems = problems
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(
            "\n".join([f"{source}: {count} in the configuration", *(f"  {p}" for p in problems)])
        )


def _duration(value: object) -> object:
    """`5s`, `200ms`, `10m` or a number of seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|h)\s*", value)
        if match is None:
            raise ValueError("expected a duration such as 500ms, 5s or 10m")
        return float(match.group(1)) * _UNITS[match.group(2)]
    return value


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetConfig(_Model):
    """One address to scrape."""

    url: str = Field(pattern=r"^https?://")
    role: Literal["engine", "gpu", "gateway"] = "engine"
    name: str | None = None
    path: str | None = None
    gpus: int = Field(default=1, ge=0)
    device: str | None = None
    build: str | None = None
    cluster: str | None = None
    address: str | None = None
    bearer_token_file: Path | None = None

    @model_validator(mode="after")
    def _gateway_names_its_cluster(self) -> TargetConfig:
        if self.role == "gateway" and self.cluster is None:
            raise ValueError("a gateway needs `cluster`: the gateway's name for this pool's upstream")
        return self


class ClientConfig(_Model):
    timeout: Duration = 600.0
    timeout_on: Literal["first_token", "answer"] = "answer"
    retries: int = Field(default=2, ge=0, le=20)


class SloConfig(_Model):
    ttft: Duration = 2.0
    tpot: Duration = 0.2


class LeverConfig(_Model):
    """Authority and bounds of one lever in one pool."""

    backend: str
    mode: Mode | None = None
    minimum: float | None = None
    maximum: float | None = None
    cooldown: Duration | None = None
    verify_within: Duration | None = None
    quarantine: Duration | None = None

    @model_validator(mode="after")
    def _bounds_in_order(self) -> LeverConfig:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum:g} is above maximum {self.maximum:g}")
        return self


class ScalingConfig(_Model):
    utilisation: float = Field(default=0.8, gt=0, le=1)
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    up_stabilisation: Duration = 15.0
    down_stabilisation: Duration = 300.0
    ready_within: Duration = 600.0
    inflight_per_replica: float | None = Field(default=None, gt=0)


class PoolConfig(_Model):
    mode: Mode | None = None
    targets: tuple[TargetConfig, ...] = ()
    targets_file: Path | None = None
    clients: ClientConfig = ClientConfig()
    slo: SloConfig = SloConfig()
    price_usd_per_gpu_hour: float = Field(default=2.95, ge=0)
    max_num_seqs: int | None = Field(default=None, ge=1)
    success_reasons: tuple[str, ...] = ("stop", "length", "repetition")
    max_out_share: float = Field(default=0.3, gt=0, le=1)
    scaling: ScalingConfig = ScalingConfig()
    levers: dict[Lever, LeverConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _reads_something(self) -> PoolConfig:
        if not self.targets and self.targets_file is None:
            raise ValueError("nothing to read: give `targets` or `targets_file`")
        return self


class BackendConfig(BaseModel):
    """`kind` names the plug-in (entry point of group inferostat.actuators); the rest are its own options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    @property
    def options(self) -> Mapping[str, Any]:
        return self.model_extra or {}


class ApiConfig(_Model):
    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65535)
    token_file: Path | None = None


class ScrapeConfig(_Model):
    deadline: Duration | None = None
    freshness: Duration | None = None
    max_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    jitter: float = Field(default=0.2, ge=0, lt=1)


class Config(_Model):
    interval: Duration = 5.0
    mode: Mode = Mode.ADVISE
    pools: dict[str, PoolConfig] = Field(min_length=1)
    backends: dict[str, BackendConfig] = Field(default_factory=dict)
    scrape: ScrapeConfig = ScrapeConfig()
    api: ApiConfig = ApiConfig()
    journal: Path = Path("inferostat.sqlite")
    retention: Duration = 1800.0
    traces: Literal["none", "console", "otlp"] = "none"

    @model_validator(mode="after")
    def _levers_have_their_backend(self) -> Config:
        missing = [
            f"pools.{pool}.levers.{lever}.backend: expected one of {sorted(self.backends)} (backends:), found"
            f" '{item.backend}'"
            for pool, settings in self.pools.items()
            for lever, item in settings.levers.items()
            if item.backend not in self.backends
        ]
        if missing:
            raise ValueError("\n".join(missing))
        return self

    @property
    def freshness_s(self) -> float:
        return self.scrape.freshness or max(3.0 * self.interval, 5.0)

    def policy(self, paused: bool = False) -> Policy:
        """The planner's view: every pool's bounds, with the file's values over the defaults."""
        return Policy({name: _pool_policy(self, pool) for name, pool in self.pools.items()}, paused)


def _pool_policy(config: Config, pool: PoolConfig) -> PoolPolicy:
    levers = {lever: _lever_policy(lever, item) for lever, item in pool.levers.items()}
    scaling = ScalingPolicy(
        utilisation=pool.scaling.utilisation,
        tolerance=pool.scaling.tolerance,
        up_stabilisation_s=pool.scaling.up_stabilisation,
        down_stabilisation_s=pool.scaling.down_stabilisation,
        ready_within_s=pool.scaling.ready_within,
        inflight_per_replica=pool.scaling.inflight_per_replica,
    )
    routing = RoutingPolicy(max_out_share=pool.max_out_share)
    mode = pool.mode or config.mode
    return PoolPolicy(mode, levers, StormPolicy(), routing, scaling, pool_settings(pool))


def _lever_policy(lever: Lever, item: LeverConfig) -> LeverPolicy:
    base = DEFAULT_LEVERS[lever]
    return LeverPolicy(
        mode=item.mode,
        minimum=base.minimum if item.minimum is None else item.minimum,
        maximum=base.maximum if item.maximum is None else item.maximum,
        cooldown_s=item.cooldown or base.cooldown_s,
        verify_within_s=item.verify_within or base.verify_within_s,
        quarantine_s=item.quarantine or base.quarantine_s,
    )


def pool_settings(pool: PoolConfig) -> PoolSettings:
    """What the analyzers must know of a pool."""
    return PoolSettings(
        client=ClientBehaviour(pool.clients.timeout, pool.clients.timeout_on, pool.clients.retries),
        slo=Slo(pool.slo.ttft, pool.slo.tpot),
        price_usd_per_gpu_hour=pool.price_usd_per_gpu_hour,
        success_reasons=pool.success_reasons,
        max_num_seqs=pool.max_num_seqs,
    )


def parse(text: str, source: str = "inferostat.yaml") -> Config:
    """A configuration from YAML text; raises ConfigError with every problem found, each with its path."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(source, [f"not readable as YAML: {_one_line(str(error))}"]) from error
    if not isinstance(raw, dict):
        raise ConfigError(source, [f"expected a mapping at the top, found {type(raw).__name__}"])
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(source, _problems(error)) from error


def load(path: Path) -> Config:
    """Read a file. ConfigError also when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            str(path), [f"cannot be read: {error.strerror}; give another file with -c"]
        ) from error
    return parse(text, str(path))


def _problems(error: ValidationError) -> list[str]:
    found: list[str] = []
    for item in error.errors(include_url=False):
        path = _path(item["loc"])
        for line in str(item["msg"]).removeprefix("Value error, ").splitlines():
            told = line if path == "(top)" else f"{path}: {line[0].lower()}{line[1:]}"
            if item["type"] != "missing" and item["type"] != "value_error":
                told += f" (found {_shown(item['input'])})"
            found.append(told)
    return found


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "(top)"


def _shown(value: object) -> str:
    text = _one_line(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())
