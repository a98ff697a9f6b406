"""Finding backends: whatever distribution offers one under the entry point group `inferostat.actuators`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from actuators.model import ActuatorError, Backend

GROUP = "inferostat.actuators"


def available() -> dict[str, EntryPoint]:
    """Kinds of backend that are installed, by name. Raises ActuatorError when two packages claim a name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise ActuatorError(
                f"actuator {point.name!r}: expected one package to offer it, found {other.value} and "
                f"{point.value}: uninstall one of them"
            )
    return found


def build(kind: str, name: str, options: Mapping[str, object]) -> Backend:
    """A backend of `kind` from its options; raises ActuatorError when it cannot be had."""
    points = available()
    if kind not in points:
        raise ActuatorError(
            f"actuator {name!r}: expected one of {', '.join(sorted(points)) or 'none'}, found {kind!r}: "
            "correct the name or install the package that offers it"
        )
    point = points[kind]
    try:
        factory = point.load()
    except (ImportError, AttributeError) as error:
        raise ActuatorError(
            f"actuator {name!r}: expected to load {point.value}, found {error}: reinstall its package"
        ) from error
    if not hasattr(factory, "from_options"):
        raise ActuatorError(
            f"actuator {name!r}: expected {point.value} to have from_options, found none: it is no backend"
        )
    backend = factory.from_options(name, options)
    if not isinstance(backend, Backend):
        missing = [part for part in _PROTOCOL if not hasattr(backend, part)]
        raise ActuatorError(
            f"actuator {name!r}: expected a backend from {point.value}, found no {', '.join(missing)}: "
            "see actuators.model.Backend"
        )
    return backend


_PROTOCOL = ("name", "levers", "from_options", "read", "apply", "close")
