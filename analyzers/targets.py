"""Which target reads which endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from collector.model import Frame, TargetRole, TargetStatus


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
