"""A DCGM-format exporter over the fleet's replicas, one device each: the fields dcgm-exporter has on by
default.

Activities come from what the engines computed over the last period: tensor and DRAM activity are the
seconds of work at peak rate that the steps contained, over the seconds that passed. A slower GPU does the
same work in more time, so its activities fall while it stays busy, and its clock falls with its speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetsim.exposition import header, labels_text
from fleetsim.timing import Gpu

WEIGHTS_AND_CACHE_SHARE = 0.9  # vLLM reserves its memory at start, whatever the load
MEMORY_CLOCK_MHZ = 2619
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
AMBIENT_C, FULL_LOAD_RISE_C, THROTTLED_RISE_C = 32.0, 38.0, 14.0

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    (ENERGY, "counter", "Total energy consumption since boot (in mJ)."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB)."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."),
)


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One device over one period: shares of time (0 to 1), and what the driver says of it."""

    uuid: str
    index: int
    hostname: str
    gpu: Gpu
    busy: float
    tensor: float
    dram: float
    loaded: bool
    slowdown: float
    xid: int

    def values(self) -> dict[str, float]:
        """A value for each field but the energy counter, which the exporter keeps."""
        throttled = self.slowdown > 1
        reserved = round(0.01 * self.gpu.hbm_mib)
        used = round(WEIGHTS_AND_CACHE_SHARE * self.gpu.hbm_mib) if self.loaded else 4
        work = min(1.0, 0.35 * self.busy + 0.5 * self.tensor + 0.3 * self.dram)
        power = self.gpu.idle_w + (self.gpu.max_w - self.gpu.idle_w) * work / self.slowdown
        temperature = AMBIENT_C + FULL_LOAD_RISE_C * work + (THROTTLED_RISE_C if throttled else 0.0)
        return {
            "DCGM_FI_DEV_SM_CLOCK": round(self.gpu.sm_clock_mhz / self.slowdown),
            "DCGM_FI_DEV_MEM_CLOCK": MEMORY_CLOCK_MHZ,
            "DCGM_FI_DEV_MEMORY_TEMP": round(temperature + 8),
            "DCGM_FI_DEV_GPU_TEMP": round(temperature),
            "DCGM_FI_DEV_POWER_USAGE": round(power, 3),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
            "DCGM_FI_DEV_GPU_UTIL": round(100 * self.busy),
            "DCGM_FI_DEV_MEM_COPY_UTIL": round(100 * self.dram),
            "DCGM_FI_DEV_XID_ERRORS": self.xid,
            "DCGM_FI_DEV_FB_FREE": self.gpu.hbm_mib - used - reserved,
            "DCGM_FI_DEV_FB_USED": used,
            "DCGM_FI_DEV_FB_RESERVED": reserved,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": round(self.busy, 6),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(self.tensor, 6),
            "DCGM_FI_PROF_DRAM_ACTIVE": round(self.dram, 6),
        }

    def labels(self) -> Mapping[str, str]:
        return {
            "gpu": str(self.index),
            "UUID": self.uuid,
            "pci_bus_id": f"00000000:{0x10 + self.index:02X}:00.0",
            "device": f"nvidia{self.index}",
            "modelName": self.gpu.name,
            "Hostname": self.hostname,
        }


class Exporter:
    """Renders the last period's readings; devices that are gone drop out with the next period."""

    def __init__(self) -> None:
        self._readings: list[DeviceReading] = []
        self._energy_mj: dict[str, float] = {}

    def collect(self, readings: Iterable[DeviceReading], period_s: float) -> None:
        self._readings = list(readings)
        for reading in self._readings:
            watts = reading.values()["DCGM_FI_DEV_POWER_USAGE"]
            self._energy_mj[reading.uuid] = self._energy_mj.get(reading.uuid, 0.0) + 1000 * watts * period_s

    def render(self) -> str:
        rows = [
            (labels_text(reading.labels()), reading.values(), round(self._energy_mj[reading.uuid]))
            for reading in self._readings
        ]
        out: list[str] = []
        for name, kind, text in FIELDS:
            out.append(header(name, kind, text))
            for labels, values, energy in rows:
                value = energy if name == ENERGY else values[name]
                out.append(f"{name}{labels} {float(value)!r}\n")
        return "".join(out)
