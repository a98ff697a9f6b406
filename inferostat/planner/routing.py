"""Weights: take out what hangs or is down, lower what is slower than its peers, and bring both back in steps.

An endpoint whose data are unknown keeps its weight: staleness is neither a reason to cut nor to raise.
"""

from __future__ import annotations

from dataclasses import replace

from actuators.model import Direction, Expectation, Lever
from analyzers.model import Finding
from collector.model import Endpoint
from inferostat.planner.model import Precedence, Proposal
from inferostat.planner.situation import Situation
from inferostat.planner.state import PlannerState

FULL_WEIGHT = 100.0
OUT = ("engine-hung", "engine-down")
SLOW = ("endpoint-outlier",)
DISTRUSTED = ("gauges-stale", "cold-start", "target-unreachable")
STORM = ("retry-storm-incipient", "retry-storm", "retry-storm-collapsed")
# the pool's measure that must improve, by the signal the outlier was found on
EFFECT_OF = {"ttft": "ttft_mean_s", "itl": "itl_mean_s", "queue": "queue_wait_s", "error": "fail_share"}


def propose(situation: Situation, state: PlannerState) -> tuple[list[Proposal], PlannerState]:
    """At most one way of moving each endpoint, the most urgent first."""
    proposals: list[Proposal] = []
    weights = _weights(situation)
    allowed_out = _allowed_out(situation, len(situation.endpoints))
    out = sum(1 for weight in weights.values() if weight == 0.0)
    adverse, taken = dict(state.adverse_at), dict(state.taken_out)
    for endpoint in situation.endpoints:
        weight = weights.get(endpoint.address)
        gone = _sure(situation.finding(*OUT, endpoint=endpoint.name), situation.policy.routing.sure_enough)
        slow = _sure(situation.finding(*SLOW, endpoint=endpoint.name), situation.policy.routing.outlier_sure_enough)
        if gone or slow or situation.finding(*DISTRUSTED, endpoint=endpoint.name):
            adverse[endpoint.address] = situation.now
        if weight is None:
            continue
        if gone is not None and weight > 0.0:
            if out >= allowed_out:
                proposals.append(_refused(situation, endpoint, gone, allowed_out))
                continue
            out += 1
            taken[endpoint.address] = taken.get(endpoint.address, 0) + 1
            proposals.append(_take_out(situation, endpoint, gone))
        elif slow is not None and gone is None and weight > situation.policy.routing.minimum_weight:
            proposals.append(_cut(situation, endpoint, slow, weight))
        elif weight < FULL_WEIGHT and gone is None and slow is None:
            since = situation.now - adverse.get(endpoint.address, float("-inf"))
            patience = situation.policy.routing.restore_after_s * max(1, taken.get(endpoint.address, 1))
            if since >= patience and _seen(situation, endpoint):
                proposals.append(_bring_back(situation, endpoint, weight, since))
    return proposals, replace(state, adverse_at=adverse, taken_out=taken)


def in_storm(situation: Situation, state: PlannerState) -> bool:
    """Whether the safety programme is at work, so that weights (other than taking out) must wait."""
    return situation.pool in state.episodes or situation.finding(*STORM) is not None


def _weights(situation: Situation) -> dict[str, float]:
    readings = {endpoint.address: situation.reading(Lever.WEIGHT, endpoint.address) for endpoint in situation.endpoints}
    return {
        address: reading.value for address, reading in readings.items() if reading.known and reading.value is not None
    }


def _allowed_out(situation: Situation, endpoints: int) -> int:
    """At least one, never the last: a pool of one is left alone."""
    share = int(situation.policy.routing.max_out_share * endpoints)
    return min(max(1, share), endpoints - 1)


def _sure(finding: Finding | None, least: float) -> Finding | None:
    return finding if finding is not None and finding.confidence >= least else None


def _seen(situation: Situation, endpoint: Endpoint) -> bool:
    """The endpoint's own data are fresh: nothing is given back on silence."""
    return situation.frame.endpoints.cell(endpoint.name, "requests_running").state.usable


def _take_out(situation: Situation, endpoint: Endpoint, finding: Finding) -> Proposal:
    failing = situation.measure("fail_share")
    expect = None
    if failing is not None:
        within = situation.policy.lever(Lever.WEIGHT).verify_within_s
        bound = max(0.05, 0.9 * failing)
        expect = Expectation("fail_share", situation.pool, Direction.DOWN, bound, situation.now + within)
    return Proposal(
        situation.key(Lever.WEIGHT, endpoint.address),
        0.0,
        f"{finding.slug} on {endpoint.name}: {finding.summary}",
        Precedence.ROUTING,
        (finding.id,),
        expect,
        urgent=True,
    )


def _refused(situation: Situation, endpoint: Endpoint, finding: Finding, allowed: int) -> Proposal:
    return Proposal(
        situation.key(Lever.WEIGHT, endpoint.address),
        situation.reading(Lever.WEIGHT, endpoint.address).value,
        f"{finding.slug} on {endpoint.name}, but {allowed} of {len(situation.endpoints)} endpoints are out"
        " already: the limit of what may be out at once",
        Precedence.ROUTING,
        (finding.id,),
    )


def _cut(situation: Situation, endpoint: Endpoint, finding: Finding, weight: float) -> Proposal:
    routing = situation.policy.routing
    value = max(routing.minimum_weight, round(weight * routing.cut_factor))
    signal = finding.evidence[0].signal if finding.evidence else ""
    measure = next((name for part, name in EFFECT_OF.items() if part in signal), None)
    current = situation.measure(measure) if measure else None
    expect = None
    if measure is not None and current is not None:
        within = situation.policy.lever(Lever.WEIGHT).verify_within_s
        expect = Expectation(measure, situation.pool, Direction.DOWN, 0.97 * current, situation.now + within)
    return Proposal(
        situation.key(Lever.WEIGHT, endpoint.address),
        float(value),
        f"{endpoint.name} is an outlier: {finding.summary}",
        Precedence.ROUTING,
        (finding.id,),
        expect,
    )


def _bring_back(situation: Situation, endpoint: Endpoint, weight: float, since: float) -> Proposal:
    routing = situation.policy.routing
    value = min(FULL_WEIGHT, max(routing.first_weight_back, 2.0 * weight))
    shown = f"{since:.0f} s" if since < 3600.0 else "over an hour"
    return Proposal(
        situation.key(Lever.WEIGHT, endpoint.address),
        float(value),
        f"nothing spoke against {endpoint.name} for {shown}: give back a step",
        Precedence.ROUTING,
        loosening=True,
    )
