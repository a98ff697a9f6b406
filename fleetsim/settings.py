"""The parts of a scenario that do not change while it plays: hardware, cluster, gateway, engines' servers, clients,
traffic. The wall-clock fleet has a real gateway and knows only some of them; virtual time knows all.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fleetsim.timing import Profile, load_profile
from fleetsim.workload import Workload

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Length = Annotated[int, Field(ge=1)]
Percent = Annotated[float, Field(ge=0, le=100)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Lengths(Strict):
    """Prompt and output lengths, uniform between bounds (tokens)."""

    prompt_tokens: tuple[Length, Length] = (300, 700)
    output_tokens: tuple[Length, Length] = (100, 200)

    @property
    def workload(self) -> Workload:
        return Workload(self.prompt_tokens, self.output_tokens)


class Hardware(Strict):
    """What one replica runs on. `max_num_seqs` and `max_num_batched_tokens` are the engine's options."""

    model: str = "Llama-3.1-70B bf16"
    gpu: str = "H100"
    gpus_per_replica: int = 4
    price_usd_per_gpu_hour: Annotated[float, Field(ge=0)] = 2.95
    max_num_seqs: Length | None = None  # None: the profile's own
    max_num_batched_tokens: Length | None = None
    kv_tokens: Length | None = None
    jitter: Share = 0.0  # standard deviation of a step's time, as a share of it

    @property
    def profile(self) -> Profile:
        options = {
            name: value
            for name in ("max_num_seqs", "max_num_batched_tokens", "kv_tokens")
            if (value := getattr(self, name)) is not None
        }
        return replace(load_profile(self.model, self.gpu, self.gpus_per_replica), **options)


class Cluster(Strict):
    """Where replicas are placed. A node takes `replicas_per_node` of them and fails as one."""

    schedulable_replicas: Count | None = None  # GPUs there are for so many; None: max_replicas
    replicas_per_node: Length = 1
    cold_start_sigma: Share = 0.0  # of the logarithm of the cold start
    spot: tuple[str, ...] = ()  # replicas that may be reclaimed
    restart_s: Seconds | None = None  # a crashed replica begins to load anew after so long; None: it never does
    drain_deadline_s: Seconds = 120.0


class Serving(Strict):
    """Switches of the engines' servers; see fleetsim.server.ServingOptions."""

    abort_on_disconnect: bool = True  # whether a client's leaving reaches the engine
    headers_at_first_token: bool = True
    stream_interval: Length = 8
    max_waiting: Count | None = None  # the server answers 503 beyond so many waiting requests
    ingress_s: Seconds = 0.0  # API and tokenizer, before the engine's queue
    token_s: Seconds = 0.0  # detokenizing and streaming, a token


class OutlierDetection(Strict):
    """Envoy's outlier detection with its defaults (outlier_detection.proto)."""

    consecutive_5xx: Length = 5
    interval_s: Positive = 10.0
    base_ejection_s: Positive = 30.0
    max_ejection_s: Positive = 300.0
    max_ejection_percent: Percent = 10.0  # one endpoint at least may always be ejected
    success_rate_minimum_hosts: Length = 5
    success_rate_request_volume: Length = 100
    success_rate_stdev_factor: Positive = 1.9


class AdmissionControl(Strict):
    """Envoy's admission-control filter with its defaults: rejects by the success rate of a sliding window."""

    window_s: Positive = 30.0
    success_threshold: Share = 0.95
    aggression: Positive = 1.0
    max_rejection: Share = 0.8
    rps_threshold: Annotated[float, Field(ge=0)] = 0.0


class BoundedQueue(Strict):
    """A queue at the gateway, in front of a bounded number of requests in flight a replica.

    Higher priorities leave it first; a full queue turns away the lowest priority, the newest first.
    """

    inflight_per_replica: Length
    capacity: Count
    timeout_s: Positive | None = None


class Gateway(Strict):
    """The hop in front of the engines: an Envoy as the embedded fleet configures it, unless said otherwise."""

    balancing: Literal["least_request", "round_robin", "prefix"] = "least_request"
    hop_s: Seconds = 0.001
    retry_on: Literal["connect_failure", "5xx"] = "connect_failure"  # 5xx: connect failures and resets as well
    retries: Count = 1
    retry_budget_percent: Percent | None = 20.0  # of the requests in flight; None: no bound
    retry_budget_minimum: Count = 3
    timeout_s: Positive | None = None  # of the route; a timed-out request is answered with 504
    outlier_detection: OutlierDetection | None = None
    admission_control: AdmissionControl | None = None
    queue: BoundedQueue | None = None


class Clients(Strict):
    """Clients that behave like the OpenAI SDK; `timeout_s` is for a stream's or an answer's first byte.

    `app_retries`: the application around the SDK tries again so many times, each with all retries of the SDK.
    `throttle_k`: client-side throttling of the SRE book with that K; None: none.
    """

    timeout_s: Positive = 10.0
    stream: bool = False
    retries: Count = 2
    app_retries: Count = 0
    throttle_k: Annotated[float, Field(ge=1)] | None = None


class Slo(Strict):
    """What a success must keep, from the first attempt on: seconds to the first token and a further token."""

    ttft_s: Positive = 2.0
    tpot_s: Positive = 0.2


class Tenant(Strict):
    """A share of the first attempts. Higher `priority` is served first where something orders by it."""

    name: str
    share: Annotated[float, Field(gt=0)] = 1.0
    priority: int = 0
    workload: Lengths | None = None


class Workflow(Strict):
    """Tasks of agents: `steps` rounds, each of `fanout` calls at once that must all succeed.

    A task fails with its first failed call and abandons the others. The arrival rate counts calls.
    """

    steps: Length = 4
    fanout: Length = 1
    think_s: Seconds = 0.5  # between rounds


class Prefixes(Strict):
    """Reusable prompt beginnings: `share` of each prompt is one of `groups` shared beginnings."""

    groups: Length = 32
    share: Share = 0.5


class Traffic(Strict):
    """Where first attempts come from. `family` names a calibrated generator; `trace` is a file instead.

    With `rate` the mean over the run stays load x capacity: `diurnal` swings by +-`swing` over `period_s`.
    """

    family: Literal["uniform", "azure-conv", "azure-code", "mooncake-conversation"] = "uniform"
    arrivals: Literal["poisson", "bursty"] = "poisson"
    rate: Literal["constant", "diurnal"] = "constant"
    swing: Share = 0.5
    period_s: Positive = 1200.0
    prefixes: Prefixes | None = None
    trace: Path | None = None

    @model_validator(mode="after")
    def _trace_or_family(self) -> Traffic:
        if self.trace is not None and (self.family != "uniform" or self.prefixes is not None):
            raise ValueError("expected either a trace or a family with its prefixes, found both: remove one")
        return self
