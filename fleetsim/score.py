"""What a run in virtual time came to, figure by figure: how policies are compared. Pure.

An answer keeps the objective (SLO) if the call was answered in full before its client gave up, with the first token
within slo.ttft_s of the call's first attempt and further tokens within slo.tpot_s each.

What was unfinished when the run ended did not succeed. Ratios leave out what nobody can know yet: goodput cohorts end
one patience of the clients before the run does (fleetsim.outcomes), and `slo_attainment` leaves out the unfinished
calls, which clients with a time-out keep few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetsim.outcomes import AFTER_S, Attempted, ratio, recovery_s
from fleetsim.scenario import Scenario
from fleetsim.sdk import patience_s
from fleetsim.settings import Slo
from fleetsim.truth import Move
from fleetsim.virtual.moves import Moved
from fleetsim.virtual.record import CallRecord
from fleetsim.virtual.result import Run

REVERSAL_S = 300.0
GATEWAY = "envoy"  # the actor of ejections


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of one run; None where there is nothing to compute them from.

    `offered` counts calls, `answered` those answered in full before their client gave up, `unfinished` those that the
    run's end cut off, `slo_met` the answered ones within the objective. Latencies are of answered calls, `itl_p95_s`
    over the calls' mean times a further token. `tasks_succeeded` is a share of the tasks that are over.
    `attempts_per_call` counts retries of clients. `wasted_tokens` is the share of generated tokens that are in no
    answer; what is being generated at the end counts.
    Of the moves, `actions` are the policy's own; a reversal takes a move back within five minutes; `wrong_actions`
    are of a kind that the scenario's truth calls wrong, and `right_done` of `right_asked` kinds were done.
    """

    offered: int
    answered: int
    unfinished: int
    slo_met: int
    slo_attainment: float | None
    cost_usd: float
    gpu_hours: float
    success_per_dollar: float | None
    goodput_ratio_before_trigger: float | None
    goodput_ratio_during_fault: float | None
    goodput_ratio_after_trigger: float | None
    recovery_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    itl_p95_s: float | None
    tasks_succeeded: float | None
    attempts_per_call: float | None
    wasted_tokens: float | None
    actions: int
    reversals: int
    wrong_actions: int
    right_done: int
    right_asked: int


def score(run: Run) -> Score:
    """All figures of a run."""
    scenario, trigger = run.scenario, run.scenario.trigger
    requests = sorted((Attempted(call.t, call.outcome == "ok") for call in run.calls), key=lambda a: a.t)
    known_until = run.duration_s - patience(scenario)
    answered = [call for call in run.calls if call.outcome == "ok"]
    met = sum(within(call, scenario.slo) for call in answered)
    unfinished = sum(call.outcome == "unfinished" for call in run.calls)
    cost = sum(allocation.cost_usd for allocation in run.allocations)
    ttfts = sorted(call.ttft_s for call in answered if call.ttft_s is not None)
    tpots = sorted(call.tpot_s for call in answered if call.tpot_s is not None)
    over = [task.succeeded for task in run.tasks if task.succeeded is not None]
    moves = policy_moves(run)
    return Score(
        offered=len(run.calls),
        answered=len(answered),
        unfinished=unfinished,
        slo_met=met,
        slo_attainment=_share(met, len(run.calls) - unfinished),
        cost_usd=cost,
        gpu_hours=sum((a.end - a.start) * a.gpus for a in run.allocations) / 3600,
        success_per_dollar=_share(met, cost),
        goodput_ratio_before_trigger=ratio(requests, 0.0, min(trigger.start_s, known_until)),
        goodput_ratio_during_fault=ratio(requests, trigger.start_s, min(trigger.end_s, known_until)),
        goodput_ratio_after_trigger=ratio(requests, trigger.end_s + AFTER_S, known_until),
        recovery_s=recovery_s(requests, trigger.end_s, known_until),
        ttft_p50_s=quantile(ttfts, 0.5),
        ttft_p95_s=quantile(ttfts, 0.95),
        itl_p95_s=quantile(tpots, 0.95),
        tasks_succeeded=_share(sum(over), len(over)),
        attempts_per_call=_share(sum(call.attempts for call in run.calls), len(run.calls)),
        wasted_tokens=_share(run.generated_tokens - sum(call.output_tokens for call in answered), run.generated_tokens),
        actions=len(moves),
        reversals=reversals(moves),
        wrong_actions=sum(any(_is(move, kind) for kind in scenario.truth.wrong) for move in moves),
        right_done=sum(any(_is(move, kind) for move in moves) for kind in scenario.truth.right),
        right_asked=len(scenario.truth.right),
    )


def patience(scenario: Scenario) -> float:
    """The longest a client waits for a first byte, over all attempts of the SDK and of the application around it."""
    clients = scenario.clients
    return (1 + clients.app_retries) * patience_s(clients.timeout_s, clients.retries)


def within(call: CallRecord, slo: Slo) -> bool:
    """Whether an answered call kept the objective. An answer of one token has no further tokens to judge."""
    return (
        call.outcome == "ok"
        and call.ttft_s is not None
        and call.ttft_s <= slo.ttft_s
        and (call.tpot_s is None or call.tpot_s <= slo.tpot_s)
    )


def policy_moves(run: Run) -> list[Moved]:
    """Moves of the policy and of the gateway it runs on (ejections), without those that the scenario's people make."""
    return [move for move in run.moves if move.actor in (run.policy, GATEWAY)]


def _is(move: Moved, kind: Move) -> bool:
    return kind.covers(move.t, move.lever, move.target, move.down)


def reversals(moves: Sequence[Moved]) -> int:
    """Moves that take the same lever of the same target back within five minutes of its previous move."""
    last: dict[tuple[str, str], Moved] = {}
    found = 0
    for move in sorted(moves, key=lambda m: m.t):
        key = (move.lever, move.target)
        before = last.get(key)
        found += before is not None and before.down != move.down and move.t - before.t <= REVERSAL_S
        last[key] = move
    return found


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The value that a share `q` of the values does not exceed (nearest rank); None of nothing."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
