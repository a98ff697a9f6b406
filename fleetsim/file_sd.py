"""The fleet's targets in Prometheus' file_sd form, with the same labels for real scrapes and in virtual time."""

from __future__ import annotations

from typing import Any

POOL = "default"


def engine_target(*, address: str, name: str, state: str, gpus: int, build: str, device: str) -> dict[str, Any]:
    """One engine. `gpus`: how many it holds; `device`: the UUIDs of its GPUs."""
    labels = {"pool": POOL, "name": name, "gpus": str(gpus), "build": build, "device": device}
    return {"targets": [address], "labels": {"__role__": "engine", "__state__": state, **labels}}


def exporter_target(address: str) -> dict[str, Any]:
    """The exporter of the GPUs."""
    return {"targets": [address], "labels": {"__role__": "gpu", "pool": POOL}}


def gateway_target(address: str, cluster: str) -> dict[str, Any]:
    """Envoy's admin interface; `cluster` is its name for the pool."""
    labels = {"__role__": "gateway", "__metrics_path__": "/stats/prometheus", "cluster": cluster, "pool": POOL}
    return {"targets": [address], "labels": labels}
