"""The storm programme: retry budget, breaker and admission, from the first signs until every limit is off.

The limit follows Little's law: a pool may hold what its batches run plus what it finishes within the share of
the client's timeout that queueing may use. Work the engines still do for clients that are gone is subtracted,
because the gateway cannot see it. Unknown data never tightens: the limits stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from actuators.model import Direction, Expectation, Lever, LeverValue
from analyzers.model import Finding
from collector.model import Endpoint
from inferostat.planner.model import Mode, Precedence, Proposal
from inferostat.planner.situation import Situation
from inferostat.planner.state import Episode, PlannerState

ENGAGING = ("retry-storm-collapsed", "retry-storm", "retry-storm-incipient")
AT_FLOOR_BEFORE_ADMISSION_S = 3.0


@dataclass(frozen=True)
class QueueView:
    """wait_s: longest engine queue as time; allowed_s: what queueing may take; want: requests in flight (or None)."""

    wait_s: float
    allowed_s: float
    want: float | None
    batches: float | None


def propose(situation: Situation, state: PlannerState) -> tuple[list[Proposal], PlannerState]:
    """What the safety levers should do now, and the state with the pool's episode brought up to date."""
    episode = state.episodes.get(situation.pool)
    finding = situation.finding(*ENGAGING)
    view = _queue_view(situation)
    if episode is None:
        if finding is None or view is None or view.wait_s < situation.policy.storm.calm_share * view.allowed_s:
            return [], state
        episode = Episode(situation.now, finding.id, situation.now)
    if view is None:
        return [], state.with_episode(situation.pool, replace(episode, seen_at=situation.now))
    episode = _observe(episode, situation, view)
    limits = {lever: situation.reading(lever) for lever in (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)}
    proposals = [
        *_breaker(situation, episode, view, finding),
        *_admission(situation, episode, view, finding),
        *_retry_budget(situation, episode, view, finding),
    ]
    all_off = all(reading.value is None for reading in limits.values() if reading.known)
    over = all_off and not proposals and episode.calm_since is not None
    advanced = replace(episode, seen_at=situation.now)
    return proposals, state.with_episode(situation.pool, None if over else advanced)


def _queue_view(situation: Situation) -> QueueView | None:
    wait = situation.measure("queue_wait_s")
    if wait is None:
        return None
    client, storm = situation.settings.client, situation.policy.storm
    on_first_token = client.timeout_on == "first_token"
    share = storm.queue_share_first_token if on_first_token else storm.queue_share_answer
    allowed = share * client.timeout_s
    answering = _answering(situation)
    learnt = [
        (batch, mu)
        for endpoint in answering
        if (batch := situation.measure("batch_limit", endpoint.name)) is not None
        and (mu := situation.measure("capacity_mu", endpoint.name)) is not None
    ]
    abandoned = situation.measure("abandoned_work")
    if not learnt or abandoned is None:
        return QueueView(wait, allowed, None, None)
    # an engine that is not learnt yet (a restart of ours, a replica that joined) is taken to be like the others
    scale = len(answering) / len(learnt)
    batches = scale * sum(batch for batch, _ in learnt)
    want = batches + scale * allowed * sum(mu for _, mu in learnt)
    return QueueView(wait, allowed, max(storm.floor_requests, want - abandoned), batches)


def _answering(situation: Situation) -> tuple[Endpoint, ...]:
    """Endpoints whose load is known now; all of them where no engine tells its running requests."""
    told = tuple(
        endpoint
        for endpoint in situation.endpoints
        if situation.frame.endpoints.cell(endpoint.name, "requests_running").state.usable
    )
    return told or situation.endpoints


def _observe(episode: Episode, situation: Situation, view: QueueView) -> Episode:
    storm = situation.policy.storm
    calm = view.wait_s < storm.calm_share * view.allowed_s
    calm_since = (episode.calm_since or situation.now) if calm else None
    limit = situation.reading(Lever.BREAKER).value
    at_floor = limit is not None and limit <= storm.floor_requests
    at_floor_since = (episode.at_floor_since or situation.now) if at_floor else None
    return replace(episode, calm_since=calm_since, at_floor_since=at_floor_since)


def _breaker(situation: Situation, episode: Episode, view: QueueView, finding: Finding | None) -> list[Proposal]:
    reading, storm = situation.reading(Lever.BREAKER), situation.policy.storm
    if not _available(situation, Lever.BREAKER):
        return []
    limit, elapsed = reading.value, max(0.0, situation.now - episode.seen_at)
    value: LeverValue = limit
    reason = ""
    engaging = limit is None and episode.engaged_at == situation.now
    if view.want is not None and (view.wait_s > view.allowed_s or engaging):
        value = view.want if limit is None else min(limit, view.want)
        reason = (
            f"queue wait {view.wait_s:.1f} s against {view.allowed_s:.1f} s allowed: hold {value:.0f} in flight"
            f" ({situation.measure('abandoned_work') or 0:.0f} requests in the engines have no client any more)"
        )
    elif limit is not None and view.wait_s < storm.calm_share * view.allowed_s:
        # No capacity is needed for this: a limit taken up after a restart would else keep itself in force, since
        # the queues that capacity is learnt from do not form below it.
        full = view.batches or situation.measure("gateway_active")
        if full is None:
            return []
        grown = max(limit * storm.raise_per_s**elapsed + elapsed, view.want or 0.0)
        value = None if grown > storm.off_at_batches * max(full, storm.floor_requests) else grown
        reason = f"queue wait {view.wait_s:.1f} s is below {storm.calm_share:.0%} of allowed: give back"
    if value == limit:
        return []
    return [_limit(situation, view, Lever.BREAKER, value, reason, _evidence(episode, finding))]


def _admission(situation: Situation, episode: Episode, view: QueueView, finding: Finding | None) -> list[Proposal]:
    reading, storm = situation.reading(Lever.ADMISSION), situation.policy.storm
    if not _available(situation, Lever.ADMISSION):
        return []
    admitted = reading.value
    alone = not _available(situation, Lever.BREAKER) or view.want is None
    floor_since = episode.at_floor_since
    floored = floor_since is not None and situation.now - floor_since >= AT_FLOOR_BEFORE_ADMISSION_S
    capacity, arrivals = situation.measure("capacity_mu"), situation.measure("attempts_rate")
    elapsed = max(0.0, situation.now - episode.seen_at)
    if view.wait_s > view.allowed_s and (alone or floored):
        if capacity is None or not arrivals:
            return []
        percent = min(100.0, 100.0 * storm.drain_share * capacity / arrivals)
        if admitted is not None:
            percent = min(percent, admitted)
        reason = (
            f"queue wait {view.wait_s:.1f} s against {view.allowed_s:.1f} s allowed and"
            f" {'no breaker to use' if alone else 'the breaker is at its floor'}: admit {percent:.0f} % of arrivals"
        )
        value: LeverValue = percent
    elif admitted is not None and view.wait_s < storm.calm_share * view.allowed_s:
        raised = admitted + storm.admission_raise_points_per_s * elapsed
        value = None if raised >= 100.0 else raised
        reason = f"queue wait {view.wait_s:.1f} s is below {storm.calm_share:.0%} of allowed: admit more"
    else:
        return []
    return [_limit(situation, view, Lever.ADMISSION, value, reason, _evidence(episode, finding))]


def _limit(
    situation: Situation, view: QueueView, lever: Lever, value: LeverValue, reason: str, evidence: tuple[str, ...]
) -> Proposal:
    """A limit that follows the queue: the move that sets it promises the effect, later ones go with it."""
    current = situation.reading(lever).value
    tightening = value is not None and (current is None or value < current)
    return Proposal(
        situation.key(lever),
        value if value is None else float(round(value)),
        reason,
        Precedence.SAFETY,
        evidence,
        _queue_expectation(situation, view, lever) if current is None else None,
        tracking=current is not None,
        urgent=True,
        loosening=not tightening,
    )


def _retry_budget(situation: Situation, episode: Episode, view: QueueView, finding: Finding | None) -> list[Proposal]:
    reading, storm = situation.reading(Lever.RETRY_BUDGET), situation.policy.storm
    if not _available(situation, Lever.RETRY_BUDGET):
        return []
    budget = reading.value
    if budget is None and episode.calm_since is None and finding is not None:
        amplification = situation.measure("amplification")
        within = situation.policy.lever(Lever.RETRY_BUDGET).verify_within_s
        expect = None
        if amplification is not None:
            expect = Expectation(
                "amplification",
                situation.pool,
                Direction.DOWN,
                max(1.3, 0.95 * amplification),
                situation.now + within,
            )
        shown = "unknown" if amplification is None else f"{amplification:.2f}"
        return [
            Proposal(
                situation.key(Lever.RETRY_BUDGET),
                storm.retry_budget_percent,
                f"{finding.slug}: amplification {shown}, let {storm.retry_budget_percent:.0f} % of retries in",
                Precedence.SAFETY,
                (finding.id,),
                expect,
                urgent=True,
            )
        ]
    calm_since = episode.calm_since
    if budget is not None and calm_since is not None:
        calm_for = situation.now - calm_since
        if calm_for >= storm.calm_before_release_s:
            return [
                Proposal(
                    situation.key(Lever.RETRY_BUDGET),
                    None,
                    f"queues calm for {calm_for:.0f} s: all retries may come again",
                    Precedence.SAFETY,
                    _evidence(episode, finding),
                    tracking=True,
                    urgent=True,
                    loosening=True,
                )
            ]
    return []


def _available(situation: Situation, lever: Lever) -> bool:
    """A lever that the operator lets us speak of and whose value we can read."""
    return situation.policy.mode_of(lever) is not Mode.OBSERVE and situation.reading(lever).known


def _evidence(episode: Episode, finding: Finding | None) -> tuple[str, ...]:
    return (finding.id,) if finding is not None else (episode.finding_id,)


def _queue_expectation(situation: Situation, view: QueueView, lever: Lever) -> Expectation:
    """The longest queue must shrink by a tenth, or to a little above what is allowed, in time."""
    return Expectation(
        "queue_wait_s",
        situation.pool,
        Direction.DOWN,
        max(1.25 * view.allowed_s, 0.9 * view.wait_s),
        situation.now + situation.policy.lever(lever).verify_within_s,
    )
