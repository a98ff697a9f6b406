"""Endpoint membership of the gateway's cluster, in the file Envoy watches (file-based EDS).

The fleet owns membership and the DRAINING mark; weights and UNHEALTHY belong to whoever operates the
gateway and are left as they are found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetsim.files import locked, replace_json

FULL_WEIGHT = 100
Endpoint = dict[str, Any]


def endpoint(port: int) -> Endpoint:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "endpoint": {"address": address},
        "health_status": "HEALTHY",
        "load_balancing_weight": FULL_WEIGHT,
    }


def assignment(cluster: str, endpoints: list[Endpoint]) -> dict[str, Any]:
    """The EDS document of one cluster."""
    resource = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster,
        "endpoints": [{"lb_endpoints": endpoints}],
    }
    return {"version_info": "0", "resources": [resource]}


def port_of(item: Endpoint) -> int:
    return int(item["endpoint"]["address"]["socket_address"]["port_value"])


class EndpointFile:
    """Edits one EDS file; every edit is a read-modify-write under the file's lock."""

    def __init__(self, path: Path, cluster: str) -> None:
        self.path = path
        self.cluster = cluster

    def create(self) -> None:
        with locked(self.path):
            replace_json(self.path, assignment(self.cluster, []))

    def add(self, port: int) -> None:
        """Add an endpoint at full weight; one that is there already is left as it is."""
        self._edit(lambda items: items if port in map(port_of, items) else [*items, endpoint(port)])

    def remove(self, port: int) -> None:
        self._edit(lambda items: [i for i in items if port_of(i) != port])

    def set_draining(self, port: int, draining: bool) -> None:
        """Mark an endpoint DRAINING, or HEALTHY again if DRAINING is what it was."""

        def mark(items: list[Endpoint]) -> list[Endpoint]:
            for item in items:
                if port_of(item) == port and draining:
                    item["health_status"] = "DRAINING"
                elif port_of(item) == port and item["health_status"] == "DRAINING":
                    item["health_status"] = "HEALTHY"
            return items

        self._edit(mark)

    def _edit(self, change: Callable[[list[Endpoint]], list[Endpoint]]) -> None:
        with locked(self.path):
            document = json.loads(self.path.read_text())
            groups = document["resources"][0]["endpoints"]
            groups[0]["lb_endpoints"] = change(groups[0]["lb_endpoints"])
            document["version_info"] = str(int(document.get("version_info", "0")) + 1)
            replace_json(self.path, document)
