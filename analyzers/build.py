"""How analyzers make findings, measures and windows: codes, onsets and states in one place."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analyzers.codes import CODES
from analyzers.model import Advice, Context, Evidence, Finding, Layer, Measure, Scope, ScopeKind, Severity
from collector.history import History
from collector.model import SignalState


def endpoint_scope(name: str) -> Scope:
    return Scope(ScopeKind.ENDPOINT, name)


def pool_scope(name: str) -> Scope:
    return Scope(ScopeKind.POOL, name)


def window(context: Context, seconds: float, samples: int = 3) -> float:
    """A window of `seconds`, widened so that it spans `samples` periods of the loop.

    The half period added keeps a late tick from pushing the oldest wanted sample out.
    """
    return max(seconds, (samples + 0.5) * context.interval_s)


def reach(history: History, context: Context, seconds: float) -> float:
    """A window of `seconds`, or what history holds if less: a rate wants half of its window covered."""
    return min(window(context, seconds), max(history.span_s(), window(context, 0.0, samples=2)))


def finding(
    slug: str,
    scope: Scope,
    context: Context,
    now: float,
    *,
    severity: Severity,
    confidence: float,
    summary: str,
    layer: Layer,
    evidence: Sequence[Evidence],
    advice: Sequence[Advice] = (),
    pool: str | None = None,
    onset: float | None = None,
) -> Finding:
    """A finding whose onset is the one it had a cycle ago; else `onset`, else now."""
    previous = context.since(slug, scope, math.nan)
    since = previous if not math.isnan(previous) else (now if onset is None else onset)
    return Finding(
        slug=slug,
        code=CODES[slug],
        severity=severity,
        scope=scope,
        since=since,
        confidence=confidence,
        summary=summary,
        layer=layer,
        evidence=tuple(evidence),
        advice=tuple(advice),
        pool=pool,
    )


def measure(
    name: str,
    scope: Scope,
    value: float | None,
    unit: str = "",
    missing: SignalState = SignalState.MISSING,
) -> Measure:
    """A known measure, or one in the state `missing` where there is no finite number."""
    if value is None or not math.isfinite(value):
        return Measure(name, scope, math.nan, missing, unit)
    return Measure(name, scope, float(value), SignalState.KNOWN, unit)


class Memory:
    """The measures of a cycle ago by name and scope: the only memory analyzers have beyond history."""

    def __init__(self, context: Context) -> None:
        self._values = {
            (m.name, m.scope.kind.value, m.scope.name): m.value for m in context.previous_measures if m.state.usable
        }

    def get(self, name: str, scope: Scope) -> float | None:
        return self._values.get((name, scope.kind.value, scope.name))
