"""Envoy's file EDS: weights and health of endpoints, edited in place beside other writers.

The file holds a DiscoveryResponse in JSON with ClusterLoadAssignments (Envoy API v3, config.endpoint.v3).
Envoy watches for the file being replaced by a rename. Writers take an exclusive lock on `<file>.lock`, read,
change, write a temporary file in the same folder and rename it, so none undoes another's change and Envoy
never reads half a file. Membership belongs to whoever runs the endpoints; only weight and health change here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from actuators.model import ActuatorError

LOCK_POLL_S = 0.005
DEFAULT_WEIGHT = 1  # of an endpoint that gives none (Envoy's documentation of load_balancing_weight)


class Health(StrEnum):
    """Names of config.core.v3.HealthStatus that matter here."""

    UNKNOWN = "UNKNOWN"
    HEALTHY = "HEALTHY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    TIMEOUT = "TIMEOUT"

    @property
    def serves(self) -> bool:
        return self in (Health.UNKNOWN, Health.HEALTHY, Health.DEGRADED)


def health_named(name: str) -> Health:
    """The health by Envoy's name for it; a name this code does not know counts as none given."""
    return Health(name) if name in Health.__members__ else Health.UNKNOWN


@dataclass(frozen=True, slots=True)
class EndpointState:
    """Routing state of an endpoint: weight as the balancer uses it, and health as configured."""

    weight: int
    health: Health


def socket_name(socket: dict[str, Any]) -> str:
    """`host:port` of a config.core.v3.SocketAddress, IPv6 in brackets as in Envoy's own metrics."""
    host = str(socket["address"])
    return f"[{host}]:{socket['port_value']}" if ":" in host else f"{host}:{socket['port_value']}"


class EdsFile:
    """The document of one EDS file, as read under its lock."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self._path = path
        self.document = document

    def _endpoints(self, cluster: str) -> Iterator[tuple[str, dict[str, Any]]]:
        try:
            for resource in self.document["resources"]:
                if resource["cluster_name"] != cluster:
                    continue
                for locality in resource.get("endpoints", []):
                    for entry in locality.get("lb_endpoints", []):
                        yield socket_name(entry["endpoint"]["address"]["socket_address"]), entry
        except (KeyError, TypeError, AttributeError) as error:
            raise ActuatorError(
                f"{self._path}: expected ClusterLoadAssignments with socket addresses, found no {error}: "
                "correct the file"
            ) from error

    def states(self, cluster: str) -> dict[str, EndpointState]:
        """Endpoints of the cluster by `host:port`."""
        return {address: _state(entry) for address, entry in self._endpoints(cluster)}

    def state(self, cluster: str, address: str) -> EndpointState:
        """One endpoint; raises ActuatorError when it is not in the file."""
        states = self.states(cluster)
        if address not in states:
            raise ActuatorError(
                f"{self._path}: expected endpoint {address} in cluster {cluster}, found "
                f"{', '.join(states) or 'none'}: the endpoint is gone or the address is wrong"
            )
        return states[address]

    def put(self, cluster: str, address: str, state: EndpointState) -> None:
        """Set weight and health of an endpoint; everything else in the document stays as it is."""
        for found, entry in self._endpoints(cluster):
            if found == address:
                entry["load_balancing_weight"] = state.weight
                entry["health_status"] = state.health.value


def _state(entry: dict[str, Any]) -> EndpointState:
    weight = int(entry.get("load_balancing_weight", DEFAULT_WEIGHT))
    name = str(entry.get("health_status", Health.UNKNOWN))
    return EndpointState(weight, health_named(name))


def read(path: Path) -> EdsFile:
    """The file as it is now. Raises ActuatorError when it cannot be read or is no DiscoveryResponse."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ActuatorError(f"{path}: expected a readable EDS file, found {error.strerror}: check eds_path") from error
    except ValueError as error:
        raise ActuatorError(f"{path}: expected EDS in JSON, found {error}: correct the file") from error
    if not isinstance(document, dict) or not isinstance(document.get("resources"), list):
        raise ActuatorError(f"{path}: expected a DiscoveryResponse with resources, found none: correct the file")
    return EdsFile(path, document)


@contextlib.contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock that all writers of the file take. Blocks; ActuatorError after `timeout_s`."""
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ActuatorError(
            f"{lock}: expected to open the lock, found {error.strerror}: check the folder's permissions"
        ) from error
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise ActuatorError(
                        f"{lock}: expected the lock within {timeout_s:g} s, found it held: "
                        "look for a stuck writer of the file"
                    ) from error
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(handle)


def replace(path: Path, document: dict[str, Any]) -> None:
    """Put the document in place of the file by a rename, mode and owner kept. The caller holds the lock."""
    temporary: Path | None = None
    try:
        before = path.stat()
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            temporary = Path(file.name)
            json.dump(document, file, separators=(",", ":"))
            file.flush()
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), before.st_uid, before.st_gid)  # Envoy must still be able to read it
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise ActuatorError(
            f"{path}: expected to replace the file, found {error.strerror}: check space and permissions"
        ) from error
