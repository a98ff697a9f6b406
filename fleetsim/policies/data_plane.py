"""Policies that are settings: of the gateway, of the clients, or of how many replicas there are once and for all."""

from __future__ import annotations

import math
from collections.abc import Callable

from fleetsim.events import GatewayEvent
from fleetsim.policies.hpa import on_queue
from fleetsim.policies.policy import PolicyInfo
from fleetsim.scenario import Scenario
from fleetsim.settings import AdmissionControl, OutlierDetection
from fleetsim.virtual.controls import Controls
from fleetsim.virtual.observation import Observation

AMPLE = 1.5
ENVOY_MAX_REQUESTS = 1024
SRE_K = 2.0
HOUR_S = 3600.0


def without_limits(scenario: Scenario) -> Scenario:
    bare = {"retry_budget_percent": None, "outlier_detection": None, "admission_control": None, "queue": None}
    return scenario.model_copy(update={"gateway": scenario.gateway.model_copy(update=bare)})


def with_envoy_defaults(scenario: Scenario) -> Scenario:
    """The circuit breaker is an entry of the timeline at 0: a limit that stands at the gateway from the start."""
    gateway = scenario.gateway.model_copy(
        update={"retry_budget_percent": 20.0, "retry_budget_minimum": 3, "outlier_detection": OutlierDetection()}
    )
    breaker = GatewayEvent(at_s=0.0, kind="gateway", breaker=ENVOY_MAX_REQUESTS)
    return scenario.model_copy(update={"gateway": gateway, "timeline": (breaker, *scenario.timeline)})


def with_throttling(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"clients": scenario.clients.model_copy(update={"throttle_k": SRE_K})})


def with_admission_control(scenario: Scenario) -> Scenario:
    return scenario.model_copy(
        update={"gateway": scenario.gateway.model_copy(update={"admission_control": AdmissionControl()})}
    )


class Settings:
    """A policy that is all settings and never acts."""

    period_s = HOUR_S

    def __init__(self, name: str, settings: Callable[[Scenario], Scenario]) -> None:
        self.name = name
        self._settings = settings

    def prepare(self, scenario: Scenario) -> Scenario:
        return self._settings(scenario)

    def decide(self, seen: Observation, controls: Controls) -> None:
        """Nothing to decide."""


class Static:
    """More replicas than needed, asked for at the first look and never again: they too start cold."""

    name = "static"
    period_s = 15.0

    def __init__(self) -> None:
        self._asked = False

    def prepare(self, scenario: Scenario) -> Scenario:
        return without_limits(scenario)

    def decide(self, seen: Observation, controls: Controls) -> None:
        if self._asked:
            return
        self._asked = True
        ample = max(seen.minimum, min(math.ceil(seen.wanted * AMPLE), seen.maximum))
        if ample != seen.wanted:
            controls.scale(self.name, ample, f"{AMPLE} times the {seen.wanted} replicas there are")


class HpaEnvoy:
    """The usual pair: an HPA on waiting requests behind a gateway with Envoy's defaults."""

    name = "hpa-envoy"

    def __init__(self) -> None:
        self._hpa = on_queue(self.name)
        self.period_s = self._hpa.period_s

    def prepare(self, scenario: Scenario) -> Scenario:
        return with_envoy_defaults(scenario)

    def decide(self, seen: Observation, controls: Controls) -> None:
        self._hpa.decide(seen, controls)


_ENVOY = {
    "retry budget": "20 % of active and pending, at least 3",
    "outlier detection": "5 consecutive 5xx, success rate under mean - 1.9 stdev each 10 s; 30 s x ejections to 300 s",
    "max_ejection_percent": "10, one endpoint at least",
    "max_requests": "1024",
}
_ENVOY_CITATION = "Envoy 1.40, outlier_detection.proto and circuit_breaker.proto"
_NO_DATA = "looks at nothing"
_VOLUME = "a success rate needs 5 endpoints with 100 requests each in an interval; fewer: no verdict"

NONE = PolicyInfo(
    name="none",
    title="No policy",
    decides_by="nothing",
    citation="baseline of this project",
    defaults={"replicas": "as the scenario starts", "gateway": "no retry budget, ejection, admission control or queue"},
    missing=_NO_DATA,
    simplified="nothing",
    build=lambda scenario: Settings("none", without_limits),
)
STATIC = PolicyInfo(
    name="static",
    title="Ample replicas",
    decides_by="nothing",
    citation="baseline of this project",
    defaults={
        "replicas": "1.5 times those the scenario starts with, rounded up, at most max_replicas, cold at 0 s",
        "gateway": "as none",
    },
    missing=_NO_DATA,
    simplified="nothing",
    build=lambda scenario: Static(),
)
ENVOY = PolicyInfo(
    name="envoy-defaults",
    title="Envoy's defaults",
    decides_by="requests in flight, retries, consecutive errors and success rate of an endpoint",
    citation=_ENVOY_CITATION,
    defaults=_ENVOY,
    missing=_VOLUME,
    simplified="max_connections and max_pending_requests are not modelled; no panic mode",
    build=lambda scenario: Settings("envoy-defaults", with_envoy_defaults),
)
SRE = PolicyInfo(
    name="sre-throttling",
    title="SRE client throttling",
    decides_by="each client's requests and accepts",
    citation="Site Reliability Engineering (2016), chapter 21 Handling Overload: client-side throttling",
    defaults={"K": "2", "window": "2 min"},
    missing=_NO_DATA,
    simplified="one throttle for all clients of the scenario; an attempt is accepted at its first token",
    build=lambda scenario: Settings("sre-throttling", with_throttling),
)
ADMISSION = PolicyInfo(
    name="envoy-admission-control",
    title="Envoy admission control",
    decides_by="success rate of the gateway's answers",
    citation="Envoy 1.40, admission_control filter",
    defaults={
        "sampling_window": "30 s",
        "sr_threshold": "95 %",
        "aggression": "1",
        "max_rejection_probability": "80 %",
        "rps_threshold": "0",
    },
    missing=_NO_DATA,
    simplified="an answer the client did not wait for counts as none",
    build=lambda scenario: Settings("envoy-admission-control", with_admission_control),
)
HPA_ENVOY = PolicyInfo(
    name="hpa-envoy",
    title="HPA on waiting requests and Envoy's defaults",
    decides_by="as hpa-queue and envoy-defaults",
    citation="Kubernetes, autoscaling/v2, as hpa-queue; " + _ENVOY_CITATION,
    defaults={"HPA": "as hpa-queue: averageValue 5"} | _ENVOY,
    missing="as hpa-queue; " + _VOLUME,
    simplified="as hpa-queue and envoy-defaults",
    build=lambda scenario: HpaEnvoy(),
)
