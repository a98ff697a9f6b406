"""The policies by name. The oracle is not among them: it needs a plan (see fleetsim.policies.oracle)."""

from __future__ import annotations

from fleetsim.policies import aibrix, data_plane, dynamo, hpa, keda, wva_v1, wva_v2
from fleetsim.policies.policy import Policy, PolicyInfo
from fleetsim.scenario import Scenario

POLICIES: dict[str, PolicyInfo] = {
    info.name: info
    for info in (
        data_plane.NONE,
        data_plane.STATIC,
        hpa.QUEUE,
        hpa.KV,
        keda.INFO,
        aibrix.KPA,
        aibrix.APA,
        wva_v1.INFO,
        wva_v2.INFO,
        dynamo.INFO,
        data_plane.ENVOY,
        data_plane.SRE,
        data_plane.ADMISSION,
        data_plane.HPA_ENVOY,
    )
}


class PolicyError(ValueError):
    """There is no such policy; the message lists the choices."""


def build(name: str, scenario: Scenario) -> Policy:
    """A fresh policy for one run of `scenario`."""
    info = POLICIES.get(name)
    if info is None:
        raise PolicyError(f"expected a policy, found {name!r}: use one of {', '.join(POLICIES)}")
    return info.build(scenario)
