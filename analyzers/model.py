"""Nouns of analysis: findings with their evidence, and measures. Analyzers are pure functions of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Protocol

from collector.history import History
from collector.model import Frame, SignalState


class Severity(IntEnum):
    INFO = 0
    WARNING = 1
    CRITICAL = 2


class Layer(StrEnum):
    CLIENT = "client"
    GATEWAY = "gateway"
    ROUTER = "router"
    CACHE = "cache"
    ADMISSION = "admission"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    MEMORY = "memory"
    GPU = "gpu"
    NETWORK = "network"
    CHANGE = "change"
    TELEMETRY = "telemetry"
    UNKNOWN = "unknown"


class ScopeKind(StrEnum):
    FLEET = "fleet"
    POOL = "pool"
    ENDPOINT = "endpoint"
    DEVICE = "device"
    ROUTE = "route"
    TARGET = "target"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Optimisation(StrEnum):
    """What an advice does with work (it always does one of the four)."""

    AVOID = "avoid"
    SHARE = "share"
    MOVE = "move"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Advice:
    lever: str
    optimisation: Optimisation
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation: `observed` and `expected` are in `unit`; None means there is no number."""

    signal: str
    observed: float | None
    expected: float | None
    why: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an analyzer believes. `slug` is a public contract, `code` its stable number (docs/findings.md)."""

    slug: str
    code: str
    severity: Severity
    scope: Scope
    since: float
    confidence: float
    summary: str
    layer: Layer
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    pool: str | None = None

    @property
    def key(self) -> tuple[str, Scope]:
        return (self.slug, self.scope)

    @property
    def id(self) -> str:
        """Stable while the finding lasts: slug, scope and onset."""
        return f"{self.slug}:{self.scope}:{self.since:.0f}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A derived number (gauge) an analyzer exports always, finding or not. NaN unless the state is usable."""

    name: str
    scope: Scope
    value: float
    state: SignalState = SignalState.KNOWN
    unit: str = ""

    @property
    def known(self) -> float | None:
        return self.value if self.state.usable else None


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
    """How the pool's clients wait and retry (configuration; the OpenAI SDK's habits by default)."""

    timeout_s: float = 600.0
    timeout_on: str = "answer"  # "first_token" or "answer"
    max_retries: int = 2


@dataclass(frozen=True, slots=True)
class Slo:
    ttft_s: float = 2.0
    tpot_s: float = 0.2


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What analyzers must know of a pool and cannot read from it."""

    client: ClientBehaviour = ClientBehaviour()
    slo: Slo = Slo()
    price_usd_per_gpu_hour: float = 2.95
    success_reasons: tuple[str, ...] = ("stop", "length", "repetition")
    max_num_seqs: int | None = None  # engines do not export it; None: learnt from the running count


@dataclass(frozen=True)
class Context:
    """What one cycle knows beyond the frame: settings and what was believed a cycle ago."""

    pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    interval_s: float = 5.0  # the loop's period; windows are multiples of it
    freshness_s: float = 15.0
    previous: Sequence[Finding] = ()
    previous_measures: Sequence[Measure] = ()
    # share of arrivals turned away at the door by our own levers, per pool (0..1); offered = seen / (1 - shed)
    shed_first_share: Mapping[str, float] = field(default_factory=dict)

    def settings(self, pool: str) -> PoolSettings:
        return self.pools.get(pool, PoolSettings())

    def since(self, slug: str, scope: Scope, now: float) -> float:
        """Onset of a finding that may already have been there a cycle ago."""
        for finding in self.previous:
            if finding.slug == slug and finding.scope == scope:
                return finding.since
        return now

    def previous_measure(self, name: str, scope: Scope) -> float | None:
        for measure in self.previous_measures:
            if measure.name == name and measure.scope == scope:
                return measure.known
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """What one analyzer says of one cycle."""

    findings: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()


class Analyzer(Protocol):
    def __call__(self, history: History, frame: Frame, context: Context, now: float) -> Report: ...


@dataclass(frozen=True)
class Analysis:
    """All analyzers of one cycle together."""

    at: float
    findings: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()

    def measure(self, name: str, scope: Scope) -> float | None:
        """The number, or None where it is unknown or was not measured."""
        found = self._measures.get((name, scope))
        return None if found is None else found.known

    def find(self, slug: str, scope: Scope | None = None) -> Finding | None:
        """The first finding of this slug, on this scope if one is given."""
        if scope is not None:
            return self._findings.get((slug, scope))
        return next((finding for finding in self.findings if finding.slug == slug), None)

    # Looked up for every endpoint of a fleet in every cycle, hence by key.

    @cached_property
    def _measures(self) -> dict[tuple[str, Scope], Measure]:
        return {(measure.name, measure.scope): measure for measure in reversed(self.measures)}

    @cached_property
    def _findings(self) -> dict[tuple[str, Scope], Finding]:
        return {finding.key: finding for finding in reversed(self.findings)}
