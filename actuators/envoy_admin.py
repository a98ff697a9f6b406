"""Envoy's admin interface: the runtime layer, what the clusters look like to Envoy, and its age.

Paths and shapes are those of Envoy 1.40: `/runtime?format=json`, `/runtime_modify`, `/clusters?format=json`,
`/server_info`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from actuators.eds import DEFAULT_WEIGHT, EndpointState, Health, health_named, socket_name
from actuators.model import ActuatorError
from actuators.rest import RestClient

_FAILED_CHECKS = ("failed_active_health_check", "failed_outlier_check", "pending_dynamic_removal")


@dataclass(frozen=True, slots=True)
class RuntimeEntry:
    """A runtime key: the value in force, and the layer that supplies it."""

    value: str
    layer: str


@dataclass(frozen=True, slots=True)
class Host:
    """An endpoint as Envoy routes to it. `passing` is False when Envoy itself took it out of rotation."""

    state: EndpointState
    passing: bool

    @property
    def serves(self) -> bool:
        return self.passing and self.state.health.serves


class EnvoyAdmin:
    """Calls to one Envoy. Every method raises ActuatorError when Envoy is gone, late or answers nonsense."""

    def __init__(self, admin_url: str, timeout_s: float) -> None:
        self._url = admin_url
        self._rest = RestClient(admin_url, timeout_s)

    async def runtime(self) -> dict[str, RuntimeEntry]:
        """All runtime keys with a value."""
        document = await self._rest.request_json("GET", "/runtime?format=json")
        try:
            layers = document["layers"]
            return {
                key: RuntimeEntry(entry["final_value"], _supplier(layers, entry["layer_values"]))
                for key, entry in document["entries"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise self._unexpected("/runtime", "layers and entries") from error

    async def modify_runtime(self, changes: Mapping[str, str]) -> None:
        """Set keys of the admin layer in one call, so that they take effect together; "" removes a key."""
        await self._rest.request("POST", f"/runtime_modify?{urlencode(changes)}")

    async def hosts(self) -> dict[str, dict[str, Host]]:
        """Endpoints by cluster and `host:port`, as Envoy has them now."""
        document = await self._rest.request_json("GET", "/clusters?format=json")
        try:
            return {
                status["name"]: {
                    socket_name(host["address"]["socket_address"]): _host(host)
                    for host in status.get("host_statuses", [])
                    if "socket_address" in host["address"]
                }
                for status in document.get("cluster_statuses", [])
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise self._unexpected("/clusters", "host statuses with addresses") from error

    async def uptime_s(self) -> int:
        """Seconds since Envoy started, in whole seconds."""
        document = await self._rest.request_json("GET", "/server_info")
        try:
            return int(str(document["uptime_all_epochs"]).removesuffix("s"))
        except (KeyError, ValueError) as error:
            raise self._unexpected("/server_info", "uptime_all_epochs in seconds") from error

    async def close(self) -> None:
        await self._rest.close()

    def _unexpected(self, path: str, expected: str) -> ActuatorError:
        return ActuatorError(
            f"GET {self._url}{path}: expected {expected}, found another shape: "
            "check that the address is Envoy's admin interface"
        )


def _supplier(layers: list[str], values: list[str]) -> str:
    """The last layer that has a value: later layers override earlier ones."""
    return next((layer for layer, value in zip(reversed(layers), reversed(values), strict=True) if value), "")


def _host(host: dict[str, Any]) -> Host:
    status = host.get("health_status", {})
    health = health_named(str(status.get("eds_health_status", Health.HEALTHY)))
    passing = not any(status.get(check, False) for check in _FAILED_CHECKS)
    return Host(EndpointState(int(host.get("weight", DEFAULT_WEIGHT)), health), passing)
