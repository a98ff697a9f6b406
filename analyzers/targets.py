"""Which target reads which endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from collector.history import History
from collector.model import Frame, TargetRole, TargetStatus

# How long a replica that joined may take until its first answer (a large model's cold start).
COLD_START_S = 600.0


def starting(history: History, target: TargetStatus, now: float) -> bool:
    """A replica that joined while we watched, has never answered and is not overdue: it warms up.

    One that has not answered since the agent's own start is not told from a wrong address, and is no cold start.
    """
    since, latest = target.failing_since, history.latest
    if target.up or target.scraped_at is not None or since is None or latest is None:
        return False
    joined_later = since > latest.at - history.span_s()
    return joined_later and now - since <= COLD_START_S


def sight_lost(frame: Frame) -> bool:
    """Nothing can be read any more, neither engines nor what stands beside them: that is the agent's own sight.

    Engines, the gateway and the GPUs' exporter do not die in one moment; a network policy or an expired certificate
    looks just like it.
    """
    roles = {target.role for target in frame.targets}
    return len(roles) > 1 and not any(target.up for target in frame.targets)


def endpoint_targets(frame: Frame) -> Mapping[str, TargetStatus]:
    """Engine targets by the endpoint they read, matched by name or by URL."""
    by_url = {endpoint.url.rstrip("/"): name for name, endpoint in frame.topology.endpoints.items() if endpoint.url}
    found: dict[str, TargetStatus] = {}
    for target in frame.targets:
        if target.role is not TargetRole.ENGINE:
            continue
        url = target.url.rstrip("/")
        name = (
            target.name
            if target.name in frame.topology.endpoints
            else by_url.get(url, by_url.get(url.removesuffix("/metrics")))
        )
        if name is not None:
            found[name] = target
    return found
