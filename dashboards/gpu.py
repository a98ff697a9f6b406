"""Row: what the devices do, as DCGM's default counters tell it."""

from __future__ import annotations

from dashboards.panels import Panel, Query, Row, timeseries
from dashboards.selectors import GPU

DEVICE = "Hostname, hostname, gpu, UUID"


def _device(title: str, text: str, metric: str, unit: str, factor: str = "") -> Panel:
    return timeseries(
        title,
        f"{text} (`{metric}`)",
        Query(f"max by ({DEVICE}) ({metric}{{{GPU}}}){factor}", "{{UUID}}"),
        unit=unit,
    )


ROW = Row(
    "GPUs",
    400,
    (
        _device(
            "Tensor pipe active",
            "Share of cycles the tensor cores worked; a utilisation of 100 % only says that a kernel was resident.",
            "llm:gpu_tensor_active:ratio",
            "percentunit",
        ),
        _device("Memory active", "Share of cycles HBM moved data.", "llm:gpu_dram_active:ratio", "percentunit"),
        timeseries(
            "HBM / compute",
            "Memory active / tensor active (`llm:gpu_hbm_compute:ratio`). Well above 1 memory-bound "
            "(decode), well "
            "below 1 compute-bound (prefill). No data while a device is idle.",
            Query(f"max by ({DEVICE}) (llm:gpu_hbm_compute:ratio{{{GPU}}})", "{{UUID}}"),
            unit="none",
            limit=1,
            no_value="idle",
        ),
        _device("Power", "Power draw.", "DCGM_FI_DEV_POWER_USAGE", "watt"),
        _device(
            "SM clock",
            "A clock below its peers' under the same load is a throttled or degraded device.",
            "DCGM_FI_DEV_SM_CLOCK",
            "hertz",
            " * 1000000",
        ),
        _device("Temperature", "GPU temperature.", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
        _device("Frame buffer used", "Memory in use.", "DCGM_FI_DEV_FB_USED", "bytes", " * 1048576"),
        timeseries(
            "Last XID",
            "The code of the last XID, 0 for none (`DCGM_FI_DEV_XID_ERRORS`). It keeps its value until "
            "the driver "
            "restarts: look at steps, not at the level.",
            Query(f"max by ({DEVICE}) (DCGM_FI_DEV_XID_ERRORS{{{GPU}}})", "{{UUID}}"),
            unit="none",
        ),
    ),
)
