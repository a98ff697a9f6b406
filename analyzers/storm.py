"""Retry storms: early warnings and the state machine over a pool's flow.

NORMAL -> VULNERABLE (nu > 1) -> INCIPIENT (two warnings) -> STORM (amplification and wasted work)
-> COLLAPSED (the wait outlives the clients) -> RECOVERING (until it was calm for a while) -> NORMAL.
Metastable failures: Bronson et al., HotOS'21; Huang et al., OSDI'22. Warnings and their false alarms were
chosen by a simulation of ramps and steps: the time to timeout warns first, the wait and the excess confirm.
"""

from __future__ import annotations

from analyzers.arrivals import measure_arrivals
from analyzers.build import Memory, finding, measure, pool_scope, window
from analyzers.capacity import measure_capacity
from analyzers.flow import Flow, flow_measures, measure_flow
from analyzers.model import (
    Advice,
    Context,
    Evidence,
    Finding,
    Layer,
    Measure,
    Optimisation,
    Report,
    Severity,
)
from collector.history import History
from collector.model import Frame

CALM_S = 30.0
# A state is left for a better one only once it has read better for this long: near a threshold it would alternate.
BETTER_FOR_S = 10.0
WORSENING = ("retry-storm-incipient", "retry-storm", "retry-storm-collapsed")
ACTIVE = (*WORSENING, "retry-storm-recovering")

_ADVICE = (
    Advice(
        "retry_budget",
        Optimisation.AVOID,
        "Cut client retries at the gateway to 10 percent or less of first attempts",
    ),
    Advice("admission", Optimisation.DELAY, "Shed new work, lowest priority first, until the queue is drained"),
    Advice("breaker", Optimisation.AVOID, "Limit requests in flight to what the engines finish in time"),
    Advice("scale", Optimisation.SHARE, "Add replicas too, but they come too late to break the loop"),
)


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    memory = Memory(context)
    findings: list[Finding] = []
    measures: list[Measure] = []
    for pool in frame.topology.pools:
        capacity = measure_capacity(history, frame, context, pool, memory)
        arrivals = measure_arrivals(history, frame, context, capacity)
        flow = measure_flow(history, frame, context, capacity, arrivals)
        calm = _calm(context, memory, pool, flow)
        previous = next((f.slug for f in context.previous if f.scope == pool_scope(pool) and f.slug in ACTIVE), None)
        slug, evidence = _step(flow, previous, calm, window(context, CALM_S, samples=4))
        better = _better_for(context, memory, pool, previous, slug)
        if 0.0 < better < window(context, BETTER_FOR_S):
            slug = previous
        findings.extend(_judge(context, pool, flow, slug, evidence, now))
        measures.extend(flow_measures(frame, capacity, flow))
        measures.append(measure("storm_calm_s", pool_scope(pool), calm, "s"))
        measures.append(measure("storm_better_s", pool_scope(pool), better, "s"))
    return Report(tuple(findings), tuple(measures))


def _calm(context: Context, memory: Memory, pool: str, flow: Flow) -> float:
    """Seconds for which the wait has stayed under a quarter of the patience; unknown is not calm."""
    quiet = flow.wait_s is not None and flow.wait_s < flow.patience_s / 4
    fail = flow.arrivals.fail_share
    if not quiet or (fail is not None and fail > 0.05):
        return 0.0
    return (memory.get("storm_calm_s", pool_scope(pool)) or 0.0) + context.interval_s


def _better_for(context: Context, memory: Memory, pool: str, previous: str | None, slug: str | None) -> float:
    """Seconds for which the readings have been better than the worsening state that is held; 0 where they are not."""
    if previous not in WORSENING:
        return 0.0
    read = WORSENING.index(slug) if slug in WORSENING else -1
    if read >= WORSENING.index(previous):
        return 0.0
    return (memory.get("storm_better_s", pool_scope(pool)) or 0.0) + context.interval_s


def warnings(flow: Flow) -> list[Evidence]:
    """The early warnings that hold now, as evidence; two of them make a storm incipient."""
    patience = flow.patience_s
    out: list[Evidence] = []
    soon = flow.time_to_timeout_s
    if soon is not None and soon < 10 * patience and (flow.queue or 0.0) > 0:
        out.append(
            Evidence("time_to_timeout_s", soon, 10 * patience, "at this growth the queue outlives the clients", "s")
        )
    wait = flow.sustained_wait_s
    # A queue that creeps (a load a little above capacity) reaches its limit late and mostly never: the wait
    # confirms only where the limit is nearer than two patiences, so that who arrives now will time out.
    near = soon is not None and soon < 2 * patience
    share = 0.25 if near else 0.5
    if wait is not None and wait > share * patience and (near or soon is None):
        why = f"{100 * share:.0f} percent of the patience is spent in the queue, three samples running"
        out.append(Evidence("queue_wait_s", wait, share * patience, why, "s"))
    if flow.excess:
        out.append(
            Evidence(
                "fail_share",
                flow.arrivals.fail_share,
                0.05,
                "attempts exceed the offered load by a fifth while they fail",
                "ratio",
            )
        )
    return out


def _step(flow: Flow, previous: str | None, calm_s: float, calm_needed_s: float) -> tuple[str | None, list[Evidence]]:
    """The state with its evidence, at most one step worse than a cycle ago: one reading is no collapse."""
    slug, evidence = _state(flow, previous, calm_s, calm_needed_s)
    if slug in WORSENING:
        held = WORSENING.index(previous) if previous in WORSENING else -1
        slug = WORSENING[min(WORSENING.index(slug), held + 1)]
    return slug, evidence


def _state(flow: Flow, previous: str | None, calm_s: float, calm_needed_s: float) -> tuple[str | None, list[Evidence]]:
    arrivals, alpha, wasted = flow.arrivals, flow.arrivals.amplification, flow.wasted_share
    if arrivals.clients_retry is False and previous is None:
        return None, []  # it fails and nobody comes back: an overload, not a loop
    offered = arrivals.offered
    evidence = warnings(flow)
    looping = alpha is not None and alpha > 1.2 and wasted is not None and wasted > 0.1 and flow.excess is True
    if looping:
        evidence.append(Evidence("amplification", alpha, 1.2, "attempts for one first attempt", "ratio"))
        evidence.append(Evidence("wasted_share", wasted, 0.1, "work the engines did that no client got", "ratio"))
    waits = flow.wait_s is not None and flow.wait_s > flow.patience_s
    if waits and looping and offered and arrivals.goodput is not None and arrivals.goodput < 0.5 * offered:
        evidence.append(
            Evidence(
                "goodput_rate",
                arrivals.goodput,
                offered,
                "less than half of what is asked for is served",
                "1/s",
            )
        )
        return "retry-storm-collapsed", evidence
    if looping:
        return "retry-storm", evidence
    possible = flow.vulnerability > 1 if flow.vulnerability is not None else arrivals.clients_retry is True
    # Once begun, one warning keeps it: a limit that bites silences warnings before the cause is gone.
    needed = 1 if previous in WORSENING else 2
    if possible and len(evidence) >= needed:
        return "retry-storm-incipient", evidence
    if previous is not None and calm_s < calm_needed_s:
        return "retry-storm-recovering", [
            Evidence(
                "queue_wait_s",
                flow.wait_s,
                flow.patience_s / 4,
                f"calm for {calm_s:.0f} of {calm_needed_s:.0f} s",
                "s",
            )
        ]
    return None, []


_SUMMARIES = {
    "retry-storm-incipient": (Severity.WARNING, 0.8, "Pool {pool} is about to enter a retry storm"),
    "retry-storm": (
        Severity.CRITICAL,
        0.9,
        "Pool {pool} is in a retry storm: retries make the load that makes them fail",
    ),
    "retry-storm-collapsed": (
        Severity.CRITICAL,
        0.95,
        "Pool {pool} has collapsed in a retry storm: clients leave before their turn comes",
    ),
    "retry-storm-recovering": (Severity.WARNING, 0.8, "Pool {pool} is recovering from a retry storm"),
}


def _judge(
    context: Context, pool: str, flow: Flow, slug: str | None, evidence: list[Evidence], now: float
) -> list[Finding]:
    scope = pool_scope(pool)
    found: list[Finding] = []
    if slug is not None:
        severity, confidence, summary = _SUMMARIES[slug]
        found.append(
            finding(
                slug,
                scope,
                context,
                now,
                severity=severity,
                confidence=confidence,
                summary=summary.format(pool=pool),
                layer=Layer.CLIENT,
                evidence=evidence,
                advice=_ADVICE,
                pool=pool,
            )
        )
    if flow.vulnerability is not None and flow.vulnerability > 1:
        found.append(
            finding(
                "vulnerable",
                scope,
                context,
                now,
                severity=Severity.INFO,
                confidence=0.9,
                layer=Layer.CLIENT,
                pool=pool,
                summary=f"Pool {pool} could be held down by retries alone after a large enough trigger",
                evidence=[
                    Evidence(
                        "vulnerability",
                        flow.vulnerability,
                        1.0,
                        "load with all retries over capacity",
                        "ratio",
                    )
                ],
                advice=[
                    Advice(
                        "retry_budget",
                        Optimisation.AVOID,
                        "A standing retry budget lowers the largest amplification",
                    )
                ],
            )
        )
    return found
