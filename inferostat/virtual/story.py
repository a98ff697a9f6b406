"""What the agent found and did, as entries of a run's timeline."""

from __future__ import annotations

from collections.abc import Mapping

from actuators.model import Action, LeverKey, Outcome, Status
from actuators.values import show
from analyzers.model import Finding, Scope
from fleetsim.virtual.result import Told
from inferostat.loop import CycleReport


class Story:
    """Told by the reports of the cycles, in their order. Findings are told when they begin and when they are over."""

    def __init__(self) -> None:
        self.entries: list[Told] = []
        self._active: dict[tuple[str, Scope], Finding] = {}
        self._moved: dict[str, LeverKey] = {}

    def take(self, t: float, report: CycleReport, engines: Mapping[str, str]) -> None:
        """One cycle at `t` virtual seconds. `engines`: names of the endpoints by address."""
        self._findings(t, report.analysis.findings)
        if report.decision is None:
            return
        for verdict in report.decision.verdicts:
            key = self._moved[verdict.action_id]
            self._tell(t, "effect", key, engines, verdict.state, verdict.detail)
        for action, outcome in zip(report.decision.actions, report.outcomes, strict=True):
            self._moved[action.id] = action.key
            self._tell(t, "action", action.key, engines, outcome.status.value, _what(action, outcome))

    def _findings(self, t: float, findings: tuple[Finding, ...]) -> None:
        now = {finding.key: finding for finding in findings}
        for key, finding in now.items():
            if key not in self._active:
                self.entries.append(Told(t, "finding", None, str(finding.scope), finding.slug, finding.summary))
        for key, finding in self._active.items():
            if key not in now:
                over = f"{finding.slug} over"
                self.entries.append(Told(t, "finding", None, str(finding.scope), over, finding.summary))
        self._active = now

    def _tell(self, t: float, kind: str, key: LeverKey, engines: Mapping[str, str], state: str, reason: str) -> None:
        target = engines.get(key.target, key.target)
        self.entries.append(Told(t, kind, key.lever.value, target, state, reason))


def _what(action: Action, outcome: Outcome) -> str:
    moved = f"{show(action.before)} -> {show(action.after)}: {action.reason}"
    return moved if outcome.status is Status.APPLIED else f"{moved}; {outcome.detail}"
