"""The levers that are the weight and the health of an endpoint at Envoy. Pure.

WEIGHT 0 is health UNHEALTHY with the configured weight kept, 1..100 is HEALTHY with that weight; DRAIN is
health DRAINING. In either case Envoy sends no new request and lets those in flight finish.
"""

from __future__ import annotations

from actuators.eds import EndpointState, Health
from actuators.model import ActuatorError, Lever, LeverValue
from actuators.values import canonical

ENDPOINT_LEVERS = frozenset({Lever.WEIGHT, Lever.DRAIN})


def value_of(lever: Lever, state: EndpointState) -> float:
    """The lever's value in a routing state; an endpoint that drains keeps the weight it returns with."""
    if lever is Lever.DRAIN:
        return 1.0 if state.health is Health.DRAINING else 0.0
    return 0.0 if state.health in (Health.UNHEALTHY, Health.TIMEOUT) else float(state.weight)


def with_value(lever: Lever, state: EndpointState, value: LeverValue) -> EndpointState:
    """The routing state after the lever is set.

    Raises ActuatorError where the other lever holds the endpoint: ending its hold would return it to traffic.
    """
    whole = canonical(lever, value) or 0.0
    if lever is Lever.DRAIN:
        if state.health in (Health.UNHEALTHY, Health.TIMEOUT):
            raise ActuatorError(f"expected an endpoint in rotation, found {state.health}: it gets no traffic already")
        return EndpointState(state.weight, Health.DRAINING if whole else Health.HEALTHY)
    if state.health is Health.DRAINING:
        raise ActuatorError("expected an endpoint in rotation, found it draining: wait until the drain is over")
    if whole == 0:
        return EndpointState(state.weight, Health.UNHEALTHY)
    return EndpointState(int(whole), Health.HEALTHY)
