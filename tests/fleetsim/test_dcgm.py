from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from fleetsim.dcgm import FIELDS, DeviceReading, Exporter
from fleetsim.timing import load_profile

BUSY = DeviceReading(
    uuid="GPU-0000",
    index=0,
    hostname="engine-0",
    gpu=load_profile().gpu,
    busy=0.95,
    tensor=0.2,
    dram=0.45,
    loaded=True,
    slowdown=1.0,
    xid=0,
)


def scrape(exporter: Exporter) -> dict[str, dict[str, float]]:
    return {
        family.name: {s.labels["UUID"]: s.value for s in family.samples}
        for family in text_string_to_metric_families(exporter.render())
    }


def test_every_default_field_is_there_for_every_device() -> None:
    exporter = Exporter()
    exporter.collect([BUSY, replace(BUSY, uuid="GPU-0001", index=1)], 1.0)
    found = scrape(exporter)
    assert set(found) == {name for name, _, _ in FIELDS}
    assert all(set(series) == {"GPU-0000", "GPU-0001"} for series in found.values())
    memory = [f"DCGM_FI_DEV_FB_{part}" for part in ("USED", "FREE", "RESERVED")]
    assert sum(found[name]["GPU-0000"] for name in memory) == load_profile().gpu.hbm_mib


def test_throttled_device_is_hotter_and_its_clock_lower() -> None:
    healthy, slow = BUSY.values(), replace(BUSY, slowdown=1.7).values()
    assert slow["DCGM_FI_DEV_SM_CLOCK"] == round(healthy["DCGM_FI_DEV_SM_CLOCK"] / 1.7)
    assert slow["DCGM_FI_DEV_GPU_TEMP"] > healthy["DCGM_FI_DEV_GPU_TEMP"]
    assert slow["DCGM_FI_DEV_POWER_USAGE"] < healthy["DCGM_FI_DEV_POWER_USAGE"]


def test_idle_device_draws_idle_power_and_energy_adds_up() -> None:
    idle = replace(BUSY, busy=0.0, tensor=0.0, dram=0.0)
    exporter = Exporter()
    for _ in range(3):
        exporter.collect([idle], 2.0)
    found = scrape(exporter)
    assert found["DCGM_FI_DEV_POWER_USAGE"]["GPU-0000"] == idle.gpu.idle_w
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]["GPU-0000"] == 6000 * idle.gpu.idle_w


def test_device_that_is_gone_drops_out() -> None:
    exporter = Exporter()
    exporter.collect([BUSY], 1.0)
    exporter.collect([], 1.0)
    assert all(not series for series in scrape(exporter).values())
