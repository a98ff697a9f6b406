"""Joins what the targets said into one Frame.

Endpoints are the engine targets, joined by address with the gateways' view of them; devices are the rows of
the GPU exporters, joined to endpoints by the label `device` (UUIDs) or by pod; routes are the gateways'
clusters. All tables have all columns of the catalog, in its order.

State rules. A value older than the freshness limit is STALE. A target that failed keeps its last values with
growing age until then. NEVER_SEEN, MISSING, INVALID and CONFLICT are the reader's. IDLE is claimed only where
it is proven: the engine answers, nothing runs or waits, and neither its token nor its finished-request
counters moved for `idle_after_s`; then its load gauges and latency histograms are idle, not merely known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collector.model import Device, Frame, Level, Pool, Route, Table, TargetRole, Topology
from collector.sources.idle import IdleProof
from collector.sources.record import TargetRecord
from collector.sources.tables import Part, build_table

_LISTENER = "listener:"


class FrameBuilder:
    """Builds frames of one fleet; remembers only since when each engine has been idle."""

    def __init__(self, freshness_s: float, idle_after_s: float = 60.0) -> None:
        self._freshness_s = freshness_s
        self._idle = IdleProof(idle_after_s)

    def build(self, records: Sequence[TargetRecord], at: float) -> Frame:
        """The frame of time `at`. Rows are in the order of `records` and of their readings."""
        engines = [record for record in records if record.target.role is TargetRole.ENGINE]
        exporters = [record for record in records if record.target.role is TargetRole.GPU]
        gateways = [record for record in records if record.target.role is TargetRole.GATEWAY]
        known = {record.target.name: record.endpoint for record in engines}
        pools: dict[str, list[str]] = {}
        for name, endpoint in known.items():
            pools.setdefault(endpoint.pool, []).append(name)
        endpoints = self._table(Level.ENDPOINT, list(known), _endpoint_parts(engines, gateways), at)
        self._idle.mark(endpoints, at)
        devices, device_parts = _devices(exporters, engines)
        routes, route_parts = _routes(gateways)
        return Frame(
            at,
            endpoints,
            self._table(Level.DEVICE, list(devices), device_parts, at),
            self._table(Level.ROUTE, list(routes), route_parts, at),
            Topology({name: Pool(name, tuple(rows)) for name, rows in pools.items()}, known, devices, routes),
            tuple(record.status() for record in records),
        )

    def _table(self, level: Level, rows: Sequence[str], parts: Sequence[Part], at: float) -> Table:
        return build_table(level, rows, parts, at, self._freshness_s)


def _endpoint_parts(engines: Sequence[TargetRecord], gateways: Sequence[TargetRecord]) -> list[Part]:
    """Each engine's own row, and each gateway's view of the engines it sends to."""
    parts = []
    for row, record in enumerate(engines):
        if record.reading is not None and record.read_at is not None:
            parts.append(Part(record.reading.rows[Level.ENDPOINT], (row,), (0,), record.read_at))
    by_address = {record.target.address: row for row, record in enumerate(engines)}
    for record in gateways:
        seen = record.reading.rows.get(Level.ENDPOINT) if record.reading is not None else None
        if seen is None or record.read_at is None:
            continue
        clusters = _clusters(record)
        source = [
            index
            for index, (address, labels) in enumerate(zip(seen.rows, seen.labels, strict=True))
            if address in by_address and (clusters is None or not clusters.isdisjoint(_split(labels, "cluster")))
        ]
        parts.append(Part(seen, [by_address[seen.rows[index]] for index in source], source, record.read_at))
    return parts


def _clusters(record: TargetRecord) -> frozenset[str] | None:
    """The gateway's clusters that lead to the target's pool, None for all."""
    return frozenset(_split(record.target.labels, "cluster")) or None


def _split(labels: Mapping[str, str], name: str) -> list[str]:
    """The parts of a comma-separated label."""
    return [part.strip() for part in labels.get(name, "").split(",") if part.strip()]


def _devices(
    exporters: Sequence[TargetRecord], engines: Sequence[TargetRecord]
) -> tuple[dict[str, Device], list[Part]]:
    owners = _Owners(engines)
    devices: dict[str, Device] = {}
    parts = []
    for record in exporters:
        if record.reading is None or record.read_at is None:
            continue
        rows = record.reading.rows[Level.DEVICE]
        first = len(devices)
        for key, labels in zip(rows.rows, rows.labels, strict=True):
            name = key if key not in devices else f"{record.target.name}/{key}"
            endpoint, pool = owners.of(key, labels)
            devices[name] = Device(name, endpoint, pool or record.target.pool, labels.get("model"))
        count = len(rows.rows)
        parts.append(Part(rows, range(first, first + count), range(count), record.read_at))
    return devices, parts


class _Owners:
    """Which engine runs on a device: by the UUIDs discovery gives it, or by the pod both belong to."""

    def __init__(self, engines: Sequence[TargetRecord]) -> None:
        self._by_device: dict[str, TargetRecord] = {}
        self._by_pod: dict[str, TargetRecord] = {}
        for record in engines:
            self._by_device.update(dict.fromkeys(_split(record.target.labels, "device"), record))
            self._by_pod[record.target.labels.get("pod", record.target.name)] = record

    def of(self, key: str, labels: Mapping[str, str]) -> tuple[str | None, str | None]:
        """Endpoint and pool, None where not known. A MIG instance belongs where its GPU does."""
        found = self._by_device.get(key) or self._by_device.get(key.partition("/")[0])
        if found is None and labels.get("pod"):
            found = self._by_pod.get(labels["pod"])
        return (found.target.name, found.target.pool) if found is not None else (None, None)


def _routes(gateways: Sequence[TargetRecord]) -> tuple[dict[str, Route], list[Part]]:
    """Routes by cluster name; a second gateway's cluster of the same name is `gateway/cluster`.

    Listeners that the reader could not give to a cluster lead to no pool in particular and are left out.
    """
    routes: dict[str, Route] = {}
    parts = []
    for record in gateways:
        if record.reading is None or record.read_at is None:
            continue
        rows, clusters = record.reading.rows[Level.ROUTE], _clusters(record)
        source = [
            index
            for index, cluster in enumerate(rows.rows)
            if (not cluster.startswith(_LISTENER) if clusters is None else cluster in clusters)
        ]
        first = len(routes)
        for index in source:
            cluster = rows.rows[index]
            name = cluster if cluster not in routes else f"{record.target.name}/{cluster}"
            routes[name] = Route(name, record.target.name, record.target.pool)
        parts.append(Part(rows, range(first, first + len(source)), source, record.read_at))
    return routes, parts
