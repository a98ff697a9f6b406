"""What each product calls the canonical signals: one TOML file a product.

Keys of a product file:

- `title`, `prefixes` (names that prove the product), `foreign` (names that prove it is something else),
  `optional_total` (counters may have lost `_total` on the way), `model_label`, `sentinels` (numbers that mean
  "no value").
- `[rows.<level>]`: `key` (labels that name a row, first present wins; empty: the target is the row), `suffix`
  (labels appended to the key), `labels` (what a row carries: name -> label spellings, first one in the body).
- `[[releases]]`: `range`, `has`, `lacks`: newest first, the first that fits names the range of releases.
- `[signals.<canonical>]`: `names` (renames, newest first: the first present wins, never summed), `fallbacks`
  (near substitutes, used when no name is there and not compared), `sum_of` (different families that add up),
  `where` / `unless` (label -> value or values, `2*` for a prefix), `scale` (to the canonical unit), `range`
  (valid, in the product's own unit), `key`, `key_prefix` and `joins` (row named by other labels, see
  `collector.plan`), `levels` (label value -> number, for one-hot families), `product_of` (labels to multiply
  for the value), `parts_by` (labels that make parts of one device), `notes` (name -> what to warn of when
  that name is the one used).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from collector.catalog.signals import CatalogSignal, signals
from collector.model import Kind, Level

PRODUCTS = ("vllm", "dcgm", "envoy")
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
_INFINITY = float("inf")


def canonical_key(name: str) -> str:
    """One spelling for a metric name: without Ray's prefix, colons as underscores."""
    return name.removeprefix("ray_").replace(":", "_")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family that can feed a signal: `name` as the product writes it, `key` canonical."""

    name: str
    key: str
    fallback: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ProductSignal:
    """How one product gives one canonical signal."""

    entry: CatalogSignal
    families: tuple[Family, ...]
    adds_up: bool = False  # the families are different things whose sum is the signal
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unless: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scale: float = 1.0
    low: float = 0.0
    high: float = _INFINITY
    key: tuple[str, ...] | None = None
    joins: bool = False
    key_prefix: str = ""
    levels: tuple[str, Mapping[str, float]] | None = None  # (label, value -> number)
    product_of: tuple[str, ...] = ()
    parts_by: tuple[str, ...] = ()  # device level: labels that make parts of one device's series

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def level(self) -> Level:
        return self.entry.signal.level

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels belongs to the signal."""
        if any(not _fits(labels.get(label), wanted) for label, wanted in self.where.items()):
            return False
        return not any(_fits(labels.get(label), unwanted) for label, unwanted in self.unless.items())


def _fits(value: str | None, patterns: tuple[str, ...]) -> bool:
    if value is None:
        return False
    return any(value.startswith(p[:-1]) if p.endswith("*") else value == p for p in patterns)


def _patterns(item: Mapping[str, str | list[str]]) -> dict[str, tuple[str, ...]]:
    return {label: (p,) if isinstance(p, str) else tuple(p) for label, p in item.items()}


@dataclass(frozen=True, slots=True)
class RowRule:
    """How series become rows at one level."""

    key: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    range: str
    has: frozenset[str]
    lacks: frozenset[str]


@dataclass(frozen=True)
class Product:
    name: str
    title: str
    prefixes: tuple[str, ...]  # canonical
    foreign: frozenset[str]  # canonical
    model_label: str | None
    sentinels: tuple[float, ...]
    rows: Mapping[Level, RowRule]
    releases: tuple[Release, ...]
    signals: Mapping[str, ProductSignal]
    sample_keys: frozenset[str]  # canonical sample names that may feed a signal
    evidence_keys: frozenset[str]  # canonical sample names that only tell releases or relatives apart

    def of_level(self, level: Level) -> tuple[ProductSignal, ...]:
        return tuple(signal for signal in self.signals.values() if signal.level is level)

    def release(self, keys: frozenset[str]) -> str | None:
        """The range of releases that a body with these canonical sample names points to."""
        for release in self.releases:
            if release.has <= keys and not release.lacks & keys:
                return release.range
        return None


@cache
def product(name: str) -> Product:
    """One product of the catalog. Raises ValueError for a name that is not in it."""
    if name not in PRODUCTS:
        raise ValueError(f"expected a product out of {', '.join(PRODUCTS)}, found {name!r}; correct the name")
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8")
    return _product(name, tomllib.loads(text))


@cache
def wanted_keys() -> frozenset[str]:
    """Canonical sample names any product wants."""
    return frozenset().union(*(product(name).sample_keys | product(name).evidence_keys for name in PRODUCTS))


def recognise(keys: frozenset[str]) -> str | None:
    """The product whose own names a body has most of; None when none, or when a relative wrote the body."""
    best, most = None, 0
    for name in PRODUCTS:
        candidate = product(name)
        if candidate.foreign & keys:
            continue
        own = sum(key.startswith(candidate.prefixes) and key in candidate.sample_keys for key in keys)
        if own > most:
            best, most = name, own
    return best


def sample_keys(family: Family, kind: Kind) -> tuple[str, ...]:
    """Canonical names of the sample lines of one family."""
    if kind is Kind.HISTOGRAM:
        return tuple(family.key + part for part in _HISTOGRAM_PARTS)
    return (family.key,)


def _product(name: str, document: Mapping[str, Any]) -> Product:
    optional_total = bool(document.get("optional_total", False))
    catalog = signals()
    known: dict[str, ProductSignal] = {}
    for signal_name in (entry for entry in catalog if entry in document["signals"]):
        entry = document["signals"][signal_name]
        known[signal_name] = _product_signal(catalog[signal_name], entry, optional_total)
    strangers = set(document["signals"]) - set(known)
    if strangers:
        raise ValueError(f"{name}.toml: expected signals of signals.toml, found {sorted(strangers)}; correct them")
    releases = tuple(
        Release(item["range"], _keys(item.get("has", ())), _keys(item.get("lacks", ())))
        for item in document.get("releases", ())
    )
    foreign = _keys(document.get("foreign", ()))
    rows = {Level(level): _row_rule(rule) for level, rule in document["rows"].items()}
    feeding = {
        key
        for signal in known.values()
        for family in signal.families
        for key in sample_keys(family, signal.entry.signal.kind)
    }
    telling = foreign.union(*(release.has | release.lacks for release in releases))
    return Product(
        name=name,
        title=document["title"],
        prefixes=tuple(canonical_key(prefix) for prefix in document["prefixes"]),
        foreign=foreign,
        model_label=document.get("model_label"),
        sentinels=tuple(float(value) for value in document.get("sentinels", ())),
        rows=MappingProxyType(rows),
        releases=releases,
        signals=MappingProxyType(known),
        sample_keys=frozenset(feeding),
        evidence_keys=frozenset(telling),
    )


def _product_signal(entry: CatalogSignal, item: Mapping[str, Any], optional_total: bool) -> ProductSignal:
    families: list[Family] = []
    notes = item.get("notes", {})
    for field_name, fallback in (("names", False), ("sum_of", False), ("fallbacks", True)):
        for name in item.get(field_name, ()):
            families.append(Family(name, canonical_key(name), fallback, notes.get(name)))
            if optional_total and entry.signal.kind is Kind.COUNTER and name.endswith("_total"):
                bare = name.removesuffix("_total")
                families.append(Family(bare, canonical_key(bare), fallback, notes.get(name)))
    low, high = item.get("range", (0.0, _INFINITY))
    levels = item.get("levels")
    return ProductSignal(
        entry=entry,
        families=tuple(families),
        adds_up="sum_of" in item,
        where=_patterns(item.get("where", {})),
        unless=_patterns(item.get("unless", {})),
        scale=float(item.get("scale", 1.0)),
        low=float(low),
        high=float(high),
        key=tuple(item["key"]) if "key" in item else None,
        joins=bool(item.get("joins", False)),
        key_prefix=item.get("key_prefix", ""),
        levels=(levels["label"], {k: float(v) for k, v in levels["values"].items()}) if levels else None,
        product_of=tuple(item.get("product_of", ())),
        parts_by=tuple(item.get("parts_by", ())),
    )


def _row_rule(rule: Mapping[str, Any]) -> RowRule:
    labels = {name: tuple(spellings) for name, spellings in rule.get("labels", {}).items()}
    return RowRule(tuple(rule.get("key", ())), tuple(rule.get("suffix", ())), labels)


def _keys(names: Any) -> frozenset[str]:
    return frozenset(canonical_key(name) for name in names)
