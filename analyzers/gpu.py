"""GPUs: memory against compute activity, and XID errors as events (the gauge that carries them is sticky)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from analyzers.build import endpoint_scope, finding, measure, pool_scope, window
from analyzers.model import (
    Advice,
    Context,
    Evidence,
    Finding,
    Layer,
    Measure,
    Optimisation,
    Report,
    Scope,
    ScopeKind,
    Severity,
)
from collector.history import History
from collector.model import FloatArray, Frame, Level

ACTIVITY_WINDOW_S = 15.0
# Fallbacks, best first: what stands in where the profiling counters are not collected.
MEMORY_SIGNALS = ("dram_active", "mem_copy_util")
COMPUTE_SIGNALS = ("tensor_active", "sm_active", "gr_engine_active", "gpu_util")
IDLE_ACTIVITY = 0.02
MEMORY_BOUND, COMPUTE_BOUND = 1.5, 0.67
LEAST_ACTIVITY = 0.2

EVENT_HOLD_S = 120.0
DEVICE_FAULT_HOLD_S = 1500.0
# NVIDIA's XID catalogue: faults of the device or its link. 13, 31, 43 and 45 come from the application.
DEVICE_XIDS: Final[dict[int, str]] = {
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "row remapping",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP timeout",
    140: "unrecovered ECC error",
}
APPLICATION_XIDS: Final[dict[int, str]] = {
    13: "graphics engine exception",
    31: "GPU memory page fault of the application",
    43: "GPU stopped processing of the application",
    45: "preemptive clean-up",
}


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    findings: list[Finding] = []
    measures: list[Measure] = []
    findings.extend(_faults(history, frame, context, now))
    ratio, memory, compute = _ratios(history, frame, context)
    owned: dict[str | None, list[int]] = {}
    for number, device in enumerate(frame.devices.rows):
        owned.setdefault(_endpoint_of(frame, device), []).append(number)
    for pool in frame.topology.pools.values():
        ratios, weights = [], []
        for name in pool.endpoints:
            numbers = owned.get(name, [])
            known = ratio[numbers][np.isfinite(ratio[numbers])]
            value = float(known.mean()) if known.size else None
            measures.append(measure("hbm_compute_ratio", endpoint_scope(name), value, "ratio"))
            if value is not None:
                ratios.append(value)
                weights.append(float(np.nanmax(np.fmax(memory[0][numbers], compute[0][numbers]))))
        overall = float(np.mean(ratios)) if ratios else None
        measures.append(measure("hbm_compute_ratio", pool_scope(pool.name), overall, "ratio"))
        if overall is not None and max(weights) >= LEAST_ACTIVITY:
            bound = _bound(pool.name, overall, memory[1], compute[1], context=context, now=now)
            if bound is not None:
                findings.append(bound)
    return Report(tuple(findings), tuple(measures))


def _endpoint_of(frame: Frame, device: str) -> str | None:
    known = frame.topology.devices.get(device)
    return known.endpoint if known is not None else None


def _first_known(history: History, frame: Frame, names: tuple[str, ...], span: float) -> tuple[FloatArray, str]:
    """Window means of the best signal that any device has: all devices are compared by the same one."""
    for name in names:
        if name in frame.devices.columns:
            column = history.mean(Level.DEVICE, name, span)
            if np.isfinite(column.value).any():
                return column.value, name
    return np.full(len(frame.devices.rows), np.nan), names[0]


def _ratios(
    history: History, frame: Frame, context: Context
) -> tuple[FloatArray, tuple[FloatArray, str], tuple[FloatArray, str]]:
    span = window(context, ACTIVITY_WINDOW_S)
    memory = _first_known(history, frame, MEMORY_SIGNALS, span)
    compute = _first_known(history, frame, COMPUTE_SIGNALS, span)
    # Both near zero is an idle device: it has no ratio.
    busy = np.fmax(memory[0], compute[0]) >= IDLE_ACTIVITY
    below = np.maximum(compute[0], 1e-3)
    return np.where(busy, memory[0] / below, np.nan), memory, compute


def _bound(pool: str, ratio: float, memory: str, compute: str, *, context: Context, now: float) -> Finding | None:
    if COMPUTE_BOUND <= ratio <= MEMORY_BOUND:
        return None
    by_memory = ratio > MEMORY_BOUND
    advice = (
        Advice(
            "batch",
            Optimisation.SHARE,
            "Decode leaves compute idle: larger batches or speculative decoding use it",
        )
        if by_memory
        else Advice("cache", Optimisation.AVOID, "Prefill is the cost: prefix caching avoids it, chunking shares it")
    )
    return finding(
        "memory-bound" if by_memory else "compute-bound",
        pool_scope(pool),
        context,
        now,
        severity=Severity.INFO,
        confidence=0.9 if (memory, compute) == (MEMORY_SIGNALS[0], COMPUTE_SIGNALS[0]) else 0.6,
        summary=(f"Pool {pool}'s GPUs are bound by {'HBM bandwidth' if by_memory else 'compute'}: ratio {ratio:.2f}"),
        layer=Layer.GPU,
        pool=pool,
        advice=(advice,),
        evidence=[Evidence("hbm_compute_ratio", ratio, 1.0, f"{memory} over {compute}", "ratio")],
    )


def _faults(history: History, frame: Frame, context: Context, now: float) -> list[Finding]:
    """XID events that are fresh enough to matter. A value that stays is the last error, not a new one."""
    findings: list[Finding] = []
    if "xid" not in frame.devices.columns:
        return findings
    for number in np.flatnonzero(frame.devices.column("xid") > 0):
        device = frame.devices.rows[number]
        event = _last_event(history, device)
        if event is None:
            continue
        at, code = event
        device_class = code in DEVICE_XIDS
        if now - at > (DEVICE_FAULT_HOLD_S if device_class else max(EVENT_HOLD_S, context.interval_s)):
            continue
        findings.append(_fault(frame, context, device, code, at, device_class=device_class, now=now))
    return findings


def _last_event(history: History, device: str) -> tuple[float, int] | None:
    """(time, code) of the newest event held: the code changed, or the exporter's own windowed count rose.

    The first sample of a device is no event: a sticky value may be days old.
    """
    codes = history.samples(Level.DEVICE, device, "xid", DEVICE_FAULT_HOLD_S)
    counts = history.samples(Level.DEVICE, device, "xid_window_count", DEVICE_FAULT_HOLD_S)
    if codes.times.size == 0:
        return None
    changed = np.flatnonzero((np.diff(codes.values) != 0) & (codes.values[1:] > 0)) + 1
    times = [float(codes.times[index]) for index in changed]
    times += [float(counts.times[index]) for index in np.flatnonzero(np.diff(counts.values) > 0) + 1]
    if not times:
        return None
    at = max(times)
    code = codes.values[int(np.searchsorted(codes.times, at, side="right")) - 1]
    return at, int(code)


def _fault(
    frame: Frame, context: Context, device: str, code: int, at: float, *, device_class: bool, now: float
) -> Finding:
    scope = Scope(ScopeKind.DEVICE, device)
    known = frame.topology.devices.get(device)
    name = DEVICE_XIDS.get(code) or APPLICATION_XIDS.get(code, "not in our catalogue")
    kind = "device" if device_class else "application" if code in APPLICATION_XIDS else "unclassified"
    advice = (
        (
            Advice(
                "drain",
                Optimisation.MOVE,
                "Drain the node once an operator confirms, then reset or replace the GPU",
            ),
        )
        if device_class
        else (
            Advice(
                "none",
                Optimisation.AVOID,
                "Look at the engine's log; the device itself is not at fault, do not drain",
            ),
        )
    )
    made = finding(
        "gpu-fault",
        scope,
        context,
        now,
        severity=Severity.CRITICAL if device_class else Severity.INFO,
        confidence=0.9 if kind != "unclassified" else 0.5,
        summary=f"{device} reported XID {code} ({name}), {kind} class",
        layer=Layer.GPU,
        pool=known.pool if known is not None else None,
        advice=advice,
        evidence=[
            Evidence(
                "xid",
                float(code),
                0.0,
                f"{kind}-class event; the gauge stays at its last code afterwards",
                "code",
            )
        ],
    )
    # Each event is a finding of its own: its onset is the event's time, not that of the one before.
    return replace(made, since=at)
