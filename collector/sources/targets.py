"""What to scrape: targets from a fixed list or from a Prometheus file_sd file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from collector.catalog import PRODUCTS
from collector.model import TargetRole

_PATHS = {TargetRole.GATEWAY: "/stats/prometheus"}


class TargetError(ValueError):
    """A target or a targets file that says something else than it should."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to scrape. `url` is the whole metrics URL, `address` (host:port) how a gateway names it.

    labels: as discovered. Known ones: `build`, `version`, `model` (identity of an engine), `device` (UUIDs of
    its GPUs, comma-separated), `pod` (to find its GPUs by), `cluster` (a gateway's clusters that lead to
    `pool`, comma-separated; all of them without it). product: catalog name where the body need not tell.
    token, token_file: bearer token, or the file that holds it, read at each scrape.
    """

    name: str
    role: TargetRole
    url: str
    address: str
    pool: str = "default"
    gpus: int = 1
    product: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    deadline_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def base_url(self) -> str:
        """Scheme, host and port: where the replica serves."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def target(
    url: str,
    role: TargetRole = TargetRole.ENGINE,
    *,
    name: str | None = None,
    pool: str = "default",
    gpus: int = 1,
    product: str | None = None,
    token: str | None = None,
    token_file: Path | None = None,
    deadline_s: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> Target:
    """A target from a URL or host:port; without a path, the one usual for its role. Raises TargetError."""
    whole = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise TargetError(f"expected http://host:port[/path] as a target, found {url!r}; correct it")
    if product is not None and product not in PRODUCTS:
        raise TargetError(f"expected one of {', '.join(PRODUCTS)} as a product, found {product!r}; correct it")
    path = parts.path if parts.path not in ("", "/") else _PATHS.get(role, "/metrics")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{host}:{port}"
    return Target(
        name=name or address,
        role=role,
        url=urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")),
        address=address,
        pool=pool,
        gpus=gpus,
        product=product,
        token=token,
        token_file=token_file,
        deadline_s=deadline_s,
        labels=MappingProxyType(dict(labels or {})),
    )


class Discovery(Protocol):
    """Gives the targets of now, and what is wrong with where they come from."""

    def targets(self) -> Sequence[Target]: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


class StaticTargets:
    """A list that does not change."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self._targets = tuple(targets)

    def targets(self) -> Sequence[Target]:
        return self._targets

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()


class JoinedTargets:
    """Several discoveries as one, in their order."""

    def __init__(self, discoveries: Sequence[Discovery]) -> None:
        self._discoveries = tuple(discoveries)

    def targets(self) -> Sequence[Target]:
        return [one for discovery in self._discoveries for one in discovery.targets()]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for discovery in self._discoveries for warning in discovery.warnings)


class FileTargets:
    """A Prometheus file_sd JSON file, read again when it changed; a broken one leaves the last good list.

    Labels it knows: `__role__` (engine, gpu, gateway), `__scheme__`, `__metrics_path__`, `__product__`,
    `name`, `pool`, `gpus`, and those of `Target.labels`.
    """

    def __init__(self, path: Path, token_file: Path | None = None) -> None:
        self._path = path
        self._token_file = token_file
        self._stamp: tuple[int, int, int] | None = None
        self._targets: tuple[Target, ...] = ()
        self._warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def targets(self) -> Sequence[Target]:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return self._targets
            body = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._stamp = None
            self._keep(f"expected a readable targets file, found {error}")
            return self._targets
        self._stamp = stamp
        try:
            self._targets, self._warnings = parse_file_sd(body, self._token_file), ()
        except TargetError as error:
            self._keep(str(error))
        return self._targets

    def _keep(self, why: str) -> None:
        kept = f"{len(self._targets)} target{'' if len(self._targets) == 1 else 's'} of the last good one kept"
        self._warnings = (f"{self._path}: {why}; {kept}, correct the file",)


def parse_file_sd(body: str, token_file: Path | None = None) -> tuple[Target, ...]:
    """Targets of a file_sd document: a list of {"targets": ["host:port"], "labels": {...}}.

    Raises TargetError for the first entry that is something else.
    """
    try:
        document = json.loads(body)
    except json.JSONDecodeError as error:
        raise TargetError(f"expected a JSON list of target groups, found {error}") from None
    if not isinstance(document, list):
        raise TargetError(f"expected a list of target groups, found {type(document).__name__}")
    return tuple(one for i, group in enumerate(document) for one in _group(i, group, token_file))


def _group(number: int, group: object, token_file: Path | None) -> list[Target]:
    where = f"group {number}"
    if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
        raise TargetError(f'{where}: expected {{"targets": [...], "labels": {{...}}}}, found {group!r:.80}')
    labels = group.get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise TargetError(f"{where}: expected labels of text to text, found {labels!r:.80}")
    try:
        role = TargetRole(labels.get("__role__", TargetRole.ENGINE))
        gpus = int(labels.get("gpus", "1"))
    except ValueError as error:
        raise TargetError(f"{where}: expected a known __role__ and a whole number of gpus, {error}") from None
    hosts = group["targets"]
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "")
    return [
        target(
            f"{scheme}://{host}{path}",
            role,
            name=labels.get("name") if len(hosts) == 1 else None,
            pool=labels.get("pool", "default"),
            gpus=gpus,
            product=labels.get("__product__"),
            token_file=token_file,
            labels={key: value for key, value in labels.items() if not key.startswith("__")},
        )
        for host in hosts
    ]
