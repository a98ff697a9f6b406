"""inferostat.yaml: its models, and one error list with the path of every mistake in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from actuators.model import Lever
from analyzers.model import ClientBehaviour, PoolSettings, Slo
from collector.sources.targets import target
from inferostat import strict_yaml
from inferostat.config_checks import check
from inferostat.config_problems import schema_problems
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
        super().__init__("\n".join([f"{source}: {count} in the configuration", *(f"  {p}" for p in problems)]))


def _duration(value: object) -> object:
    """`5s`, `200ms`, `10m` or a number of seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)\s*", value)
        if match is None:
            raise ValueError(f"expected a duration such as 500ms, 5s or 10m, found {value!r}; correct it")
        return float(match.group(1)) * _UNITS[match.group(2)]
    if isinstance(value, bool):  # pydantic tells a ValueError with its path, and lets a TypeError through
        raise ValueError(f"expected a duration such as 500ms, 5s or 10m, found {value}; correct it")  # noqa: TRY004
    return value


def _beside_the_file(value: Path, info: ValidationInfo) -> Path:
    """A relative path counts from the folder of the configuration file, wherever the agent was started."""
    base = (info.context or {}).get("base")
    whole = value.expanduser()
    return whole if base is None else Path(base) / whole


def _http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"expected http://host:port[/path] as a target, found {value!r}; correct it")
    target(value)  # its TargetError is a ValueError that explains
    return value


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0, allow_inf_nan=False)]
FilePath = Annotated[Path, AfterValidator(_beside_the_file)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TargetConfig(_Model):
    """One address to scrape."""

    url: HttpUrl
    role: Literal["engine", "gpu", "gateway"] = "engine"
    name: str | None = None
    path: str | None = None
    gpus: int = Field(default=1, ge=0)
    device: str | None = None
    build: str | None = None
    cluster: str | None = None
    address: str | None = None
    bearer_token_file: FilePath | None = None


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


class ScalingConfig(_Model):
    utilisation: float = Field(default=0.85, gt=0, le=1)
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    up_stabilisation: Duration = 15.0
    down_stabilisation: Duration = 300.0
    ready_within: Duration = 600.0
    inflight_per_replica: float | None = Field(default=None, gt=0)


class PoolConfig(_Model):
    mode: Mode | None = None
    targets: tuple[TargetConfig, ...] = ()
    targets_file: FilePath | None = None
    clients: ClientConfig = ClientConfig()
    slo: SloConfig = SloConfig()
    price_usd_per_gpu_hour: float = Field(default=2.95, ge=0)
    max_num_seqs: int | None = Field(default=None, ge=1)
    success_reasons: tuple[str, ...] = ("stop", "length", "repetition")
    max_out_share: float = Field(default=0.3, gt=0, le=1)
    scaling: ScalingConfig = ScalingConfig()
    levers: dict[Lever, LeverConfig] = Field(default_factory=dict)


class BackendConfig(BaseModel):
    """`kind` names the plug-in (entry point of group inferostat.actuators); the rest are its own options.

    Options whose names end in `_path` or `_file` are paths.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    @model_validator(mode="before")
    @classmethod
    def _paths_beside_the_file(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, dict):
            return value
        return {
            key: str(_beside_the_file(Path(item), info))
            if str(key).endswith(("_path", "_file")) and isinstance(item, str)
            else item
            for key, item in value.items()
        }

    @property
    def options(self) -> Mapping[str, Any]:
        return self.model_extra or {}


class ApiConfig(_Model):
    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65535)
    token_file: FilePath | None = None


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
    journal: FilePath = Field(default=Path("inferostat.sqlite"), validate_default=True)
    retention: Duration = 1800.0
    traces: Literal["none", "console", "otlp"] = "none"

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


def parse(text: str, source: str = "inferostat.yaml", base: Path | None = None) -> Config:
    """A configuration from YAML text; raises ConfigError with every problem found, each with its path.

    `base`: the folder that relative paths count from; None is the process's own.
    """
    try:
        raw, problems = strict_yaml.read(text)
    except strict_yaml.YamlError as error:
        raise ConfigError(source, [f"expected YAML, found {error}; correct it there"]) from error
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else type(raw).__name__
        raise ConfigError(source, [f"expected a mapping at the top, found {found}; see the example file"])
    try:
        config = Config.model_validate(raw, context={"base": base})
    except ValidationError as error:
        raise ConfigError(source, [*problems, *schema_problems(error, Config), *check(raw)]) from error
    problems += check(raw)
    if problems:
        raise ConfigError(source, problems)
    return config


def load(path: Path) -> Config:
    """Read a file. ConfigError also when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(str(path), [f"expected a readable file, found {found}; give another one with -c"]) from error
    return parse(text, str(path), path.absolute().parent)
