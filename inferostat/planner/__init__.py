"""Decide: findings, frame, readings and policy in; actions and the reasons for them out. Pure."""

from inferostat.planner.arbiter import decide
from inferostat.planner.model import (
    Consideration,
    Decision,
    Mode,
    Precedence,
    Proposal,
    Step,
    StepName,
    Verdict,
)
from inferostat.planner.policy import (
    LeverPolicy,
    Policy,
    PoolPolicy,
    RoutingPolicy,
    ScalingPolicy,
    StormPolicy,
)
from inferostat.planner.state import PlannerState

__all__ = [
    "Consideration",
    "Decision",
    "LeverPolicy",
    "Mode",
    "PlannerState",
    "Policy",
    "PoolPolicy",
    "Precedence",
    "Proposal",
    "RoutingPolicy",
    "ScalingPolicy",
    "Step",
    "StepName",
    "StormPolicy",
    "Verdict",
    "decide",
]
