"""What the schema cannot see: how the parts of a configuration fit together.

The checks read the raw document, so that they find their mistakes beside those of the schema and not after
them; what has a wrong shape is the schema's to tell and is passed over here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actuators.model import ActuatorError, Backend, Lever
from actuators.options import OptionsError
from actuators.registry import build
from collector.sources.targets import TargetError, target
from inferostat.config_problems import nearest

Raw = Mapping[str, object]
LEVERS = frozenset(lever.value for lever in Lever)


def check(raw: Raw) -> list[str]:
    """One line for each mistake, each with its path."""
    backends = _mapping(raw.get("backends"))
    built: dict[str, Backend] = {}
    problems = list(_build(backends, built))
    names: dict[str, str] = {}
    for name, pool in _mappings(raw.get("pools")):
        path = f"pools.{name}"
        problems += _sources(path, pool)
        problems += _targets(path, pool, names)
        problems += _levers(path, pool, backends, built)
    return problems


def _build(backends: Raw, built: dict[str, Backend]) -> Iterator[str]:
    """Every backend, made once from its options to see whether it can be; that touches nothing outside."""
    for name, options in _mappings(backends):
        kind = options.get("kind")
        if not isinstance(kind, str):
            continue
        try:
            built[name] = build(kind, name, {key: value for key, value in options.items() if key != "kind"})
        except OptionsError as error:
            yield from (f"backends.{name}.{problem}" for problem in error.problems)
        except ActuatorError as error:
            yield f"backends.{name}.kind: {error}"


def _sources(path: str, pool: Raw) -> Iterator[str]:
    if not pool.get("targets") and pool.get("targets_file") is None:
        yield f"{path}: expected something to read, found neither `targets` nor `targets_file`; give one"


def _targets(path: str, pool: Raw, names: dict[str, str]) -> Iterator[str]:
    targets = pool.get("targets")
    for number, item in enumerate(targets if isinstance(targets, list) else ()):
        if not isinstance(item, Mapping):
            continue
        here = f"{path}.targets[{number}]"
        if item.get("role") == "gateway" and item.get("cluster") is None:
            yield (f"{here}.cluster: expected the gateway's name for this pool's upstream, found none; add it")
        name = _name(item)
        if name is not None and name in names:
            yield (
                f"{here}.name: expected each target's name once, found {name!r} also at {names[name]};"
                " name one of them otherwise"
            )
        elif name is not None:
            names[name] = here


def _name(item: Raw) -> str | None:
    """The name a target goes by: its own, or host and port."""
    name, url = item.get("name"), item.get("url")
    if isinstance(name, str):
        return name
    try:
        return target(url).name if isinstance(url, str) else None
    except TargetError:
        return None


def _levers(path: str, pool: Raw, backends: Raw, built: Mapping[str, Backend]) -> Iterator[str]:
    for lever, item in _mappings(pool.get("levers")):
        here = f"{path}.levers.{lever}"
        low, high = item.get("minimum"), item.get("maximum")
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            yield f"{here}.minimum: expected at most the maximum {high:g}, found {low:g}; correct them"
        backend = item.get("backend")
        if not isinstance(backend, str):
            continue
        if backend not in backends:
            yield (
                f"{here}.backend: expected the name of one of `backends`, found {backend!r};"
                f" {nearest(backend, map(str, backends))}"
            )
        elif backend in built and lever in LEVERS and lever not in built[backend].levers:
            able = ", ".join(sorted(built[backend].levers))
            yield (
                f"{here}.backend: expected one that moves {lever}, found {backend!r}, which moves {able}; correct it"
            )


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> Iterator[tuple[str, Raw]]:
    for key, item in _mapping(value).items():
        if isinstance(item, Mapping):
            yield str(key), item
