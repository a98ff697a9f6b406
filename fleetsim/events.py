"""What happens while a scenario plays: the entries of its timeline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fleetsim.settings import Count, Percent, Positive, Seconds, Strict
from fleetsim.timing import Degradation

FaultKind = Literal["slow", "hang", "crash", "recover", "deploy"]


class Fault(Strict):
    """What befalls engines: the body of POST /admin/faults, and an entry of a timeline."""

    kind: FaultKind
    targets: list[str] | Literal["all"] = "all"
    g: Positive = 1.0  # the whole step's time
    g_decode: Positive = 1.0  # its decode part
    g_prefill: Positive = 1.0  # what prefill adds
    xid: Count | None = None  # the GPU error a crash leaves behind
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
    """The clients change: `factor` times the base rate, prompts `prompt_scale` times as long.

    `ramp_s`: over so many seconds instead of at once. `tenant`: only that one's. `fanout`: calls at once of a
    workflow's step. `shared_prefixes` False: prompts no longer begin alike.
    """

    at_s: Seconds
    kind: Literal["load"]
    factor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    prompt_scale: Positive = 1.0
    ramp_s: Seconds = 0.0
    tenant: str | None = None
    fanout: Annotated[int, Field(ge=1)] | None = None
    shared_prefixes: bool = True

    @property
    def wall_clock(self) -> bool:
        """Whether clients of the wall-clock fleet can do it."""
        return not self.ramp_s and self.tenant is None and self.fanout is None and self.shared_prefixes


class NodeEvent(Strict):
    """A node fails (its replicas crash), slows down by `g`, or is well again. Node k holds its share of replicas."""

    at_s: Seconds
    kind: Literal["node"]
    node: Count
    state: Literal["down", "slow", "well"]
    g: Positive = 1.0


class ReclaimEvent(Strict):
    """The provider takes spot replicas back: they get `notice_s` to drain, then they are gone."""

    at_s: Seconds
    kind: Literal["reclaim"]
    targets: list[str]
    notice_s: Seconds = 30.0


class CapacityEvent(Strict):
    """From now on there are GPUs for `schedulable_replicas`; what runs stays."""

    at_s: Seconds
    kind: Literal["capacity"]
    schedulable_replicas: Count


class TelemetryEvent(Strict):
    """Scrapes go wrong: refused; the same body again (stale); a body `lag_s` old; `families` gone or NaN; well again.

    `targets`: replica names, `gateway` or `dcgm`. `families`: metric names as exposed.
    """

    at_s: Seconds
    kind: Literal["telemetry"]
    mode: Literal["refused", "stale", "lag", "missing", "nan", "well"]
    targets: list[str] | Literal["all"] = "all"
    families: tuple[str, ...] = ()
    lag_s: Seconds = 0.0

    @model_validator(mode="after")
    def _families_where_needed(self) -> TelemetryEvent:
        if (self.mode in ("missing", "nan")) != bool(self.families):
            raise ValueError("expected `families` with mode missing or nan and only there")
        return self


class CacheEvent(Strict):
    """The prefix caches of `targets` are emptied."""

    at_s: Seconds
    kind: Literal["flush"]
    targets: list[str] | Literal["all"] = "all"


class GatewayEvent(Strict):
    """Somebody else sets a limit at the gateway (an operator, a rollout). None lifts it."""

    at_s: Seconds
    kind: Literal["gateway"]
    admission: Percent | None = None
    breaker: Count | None = None


Event = Annotated[
    EngineEvent | LoadEvent | NodeEvent | ReclaimEvent | CapacityEvent | TelemetryEvent | CacheEvent | GatewayEvent,
    Field(discriminator="kind"),
]
