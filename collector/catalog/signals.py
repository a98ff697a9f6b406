"""Canonical signals: names, units, levels and aggregation rules, from signals.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType

from collector.model import Kind, Level, Signal


class Aggregate(StrEnum):
    """How the parts of one row (ranks, servers, devices) become one value."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class CatalogSignal:
    signal: Signal
    aggregate: Aggregate

    @property
    def name(self) -> str:
        return self.signal.name

    @property
    def is_histogram(self) -> bool:
        return self.signal.kind is Kind.HISTOGRAM


@cache
def signals() -> Mapping[str, CatalogSignal]:
    """All canonical signals by name, in the catalog's order. Names are unique over the levels."""
    document = tomllib.loads(resources.files(__package__).joinpath("signals.toml").read_text("utf-8"))
    found: dict[str, CatalogSignal] = {}
    for level in Level:
        for name, entry in document[level.value].items():
            if name in found:
                raise ValueError(f"signals.toml: expected every signal once, found {name} twice; rename one")
            signal = Signal(name, Kind(entry["kind"]), entry["unit"], level, entry["help"])
            found[name] = CatalogSignal(signal, Aggregate(entry["aggregate"]))
    return MappingProxyType(found)
