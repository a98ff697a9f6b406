import random

from prometheus_client.parser import text_string_to_metric_families

from fleetsim.virtual.exporters import FAMILY_OF, DeviceExporter, engine_body
from fleetsim.virtual.observation import EngineSeen
from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet


def busy_fleet() -> Fleet:
    """Two engines in the midst of work, with reused prefixes."""
    fleet = Fleet(hardware={"max_num_seqs": 8, "jitter": 0.05})
    rng = random.Random(1)
    for _ in range(40):
        for replica in fleet.pool.replicas:
            prompt = rng.randint(400, 3000)
            replica.server.offer(attempt(prompt, rng.randint(1, 200), prefix=((rng.randint(0, 3), 320),)))
        fleet.run(0.25)
    return fleet


def samples(body: str) -> dict[str, float]:
    """Values by sample name, summed over labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_seen_is_what_the_body_says() -> None:
    fleet = busy_fleet()
    server = fleet["engine-0"].server
    found = samples(engine_body(server))
    metrics, profile = server.metrics, fleet.pool.profile
    assert metrics is not None
    seen = metrics.seen(profile.num_blocks * profile.block_size, 10.0)
    assert set(FAMILY_OF) == set(EngineSeen.__dataclass_fields__) - {"scraped_at"}
    for field, family in FAMILY_OF.items():
        value = getattr(seen, field)
        if field == "kv_tokens":
            assert f'kv_cache_size_tokens="{value}"' in engine_body(server)
            continue
        suffix = "_sum" if field.endswith("_sum") else "_count" if field.endswith("_count") else ""
        assert value == found[family + suffix], field
        assert value > 0 or field == "preemptions", field


def test_body_is_of_now() -> None:
    fleet = Fleet()
    server = fleet["engine-0"].server
    server.offer(attempt(output_tokens=1000))
    fleet.run(1)
    before = samples(engine_body(server))["vllm:generation_tokens_total"]
    fleet.run(0.1)
    after = samples(engine_body(server))["vllm:generation_tokens_total"]
    assert 3 <= after - before <= 7
    fleet.run(0.1)
    assert 3 <= fleet.pool.generated_tokens - after <= 7


def test_process_starts_in_unix_time_when_it_begins_to_load() -> None:
    fleet = Fleet(origin=1000.0)
    fleet.run(5)
    fleet.pool.scale(3)
    fleet.run(100)
    started = [samples(engine_body(r.server))["process_start_time_seconds"] for r in fleet.pool.replicas]
    assert started == [1000.0, 1000.0, 1005.0]


def device_rows(devices: DeviceExporter) -> dict[tuple[str, str], float]:
    """Values by field and replica."""
    families = text_string_to_metric_families(devices.body())
    return {(family.name, s.labels["Hostname"]): s.value for family in families for s in family.samples}


def test_exporter_has_something_to_say_from_its_start_on() -> None:
    fleet = Fleet()
    devices = DeviceExporter(fleet.simulation, fleet.pool)
    devices.start()
    assert device_rows(devices)["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "engine-0"] == 0
    fleet = Fleet()
    fleet["engine-0"].server.offer(attempt(output_tokens=2))
    fleet.run(100)
    late = DeviceExporter(fleet.simulation, fleet.pool)
    late.start()
    # A prefill of 500 tokens in 100 s
    assert 0.0003 < device_rows(late)["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "engine-0"] < 0.002


def test_started_twice_it_reads_once() -> None:
    fleet = Fleet()
    devices = DeviceExporter(fleet.simulation, fleet.pool)
    devices.start()
    fleet.run(1)
    fleet["engine-0"].server.offer(attempt(output_tokens=1000))
    fleet.run(0.5)
    devices.start()
    fleet.run(0.5)
    assert device_rows(devices)["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "engine-0"] > 0.9
    energy_mj = device_rows(devices)["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "engine-1"]
    assert energy_mj == 3000 * fleet.pool.profile.gpu.idle_w


def test_devices_are_read_every_second_and_only_the_allocated_ones() -> None:
    fleet = busy_fleet()
    devices = DeviceExporter(fleet.simulation, fleet.pool)
    devices.start()
    fleet.crash("engine-1")
    fleet.pool.scale(3)
    fleet.run(1)
    rows = device_rows(devices)
    activity = [rows["DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"engine-{k}"] for k in range(3)]
    assert activity[0] > 0.9 and activity[1:] == [0.0, 0.0]
    used = [rows["DCGM_FI_DEV_FB_USED", f"engine-{k}"] for k in range(3)]
    assert used[0] > 70_000 and used[1:] == [4.0, 4.0]
    fleet.pool.retire("engine-0")
    fleet.run(200)
    assert "engine-0" not in devices.body() and "engine-2" in devices.body()


def test_watching_the_devices_changes_nothing() -> None:
    def told(watched: bool) -> list[tuple[float, str]]:
        fleet = busy_fleet()
        if watched:
            DeviceExporter(fleet.simulation, fleet.pool).start()
        fleet.run(60)
        return [(round(t, 6), what) for t, what, _ in fleet.gateway.told]

    assert told(watched=True) == told(watched=False)
