"""What the fleet's exporters say in virtual time: engines about themselves, DCGM about the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim.dcgm import Exporter
from fleetsim.virtual.observation import EngineSeen
from fleetsim.virtual.simulation import Simulation
from fleetsim.vllm_metrics import EngineMetrics

if TYPE_CHECKING:
    from fleetsim.virtual.pool import Pool
    from fleetsim.virtual.server import Server

DEVICE_PERIOD_S = 1.0  # between two readings of the devices

# Which exposed family each field of an EngineSeen is read from.
FAMILY_OF = {
    "waiting": "vllm:num_requests_waiting",
    "running": "vllm:num_requests_running",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "kv_tokens": "vllm:cache_config_info",
    "requests_finished": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "cached_prompt_tokens": "vllm:prompt_tokens_cached_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "request_prompt_sum": "vllm:request_prompt_tokens",
    "request_generation_sum": "vllm:request_generation_tokens",
    "ttft_sum": "vllm:time_to_first_token_seconds",
    "ttft_count": "vllm:time_to_first_token_seconds",
    "itl_sum": "vllm:inter_token_latency_seconds",
    "itl_count": "vllm:inter_token_latency_seconds",
    "preemptions": "vllm:num_preemptions_total",
}


class ReadableMetrics(EngineMetrics):
    """An engine's metrics whose values can be had without a body: what a query over a scrape would yield."""

    def seen(self, kv_tokens: int, now: float) -> EngineSeen:
        """The values as `render` would show them now; a test holds the two against each other."""
        if self.refresh is not None:
            self.refresh()
        return EngineSeen(
            scraped_at=now,
            waiting=self._waiting.value,
            running=self._running.value,
            kv_usage=self._kv_usage.value,
            kv_tokens=kv_tokens,
            requests_finished=self._length.value,
            prompt_tokens=self._prompt_tokens.value,
            cached_prompt_tokens=self._cached.value,
            generation_tokens=self._generation_tokens.value,
            request_prompt_sum=self._request_prompt.sum,
            request_generation_sum=self._request_generation.sum,
            ttft_sum=self._ttft.sum,
            ttft_count=self._ttft.count,
            itl_sum=self._itl.sum,
            itl_count=self._itl.count,
            preemptions=self._preemptions.value,
        )

    @property
    def generated_tokens(self) -> float:
        if self.refresh is not None:
            self.refresh()
        return self._generation_tokens.value


def engine_body(server: Server) -> str:
    """An engine's /metrics body now. Only while listening; a hung one shows its last gauges."""
    server.advance()
    assert server.metrics is not None
    return server.metrics.render()


class DeviceExporter:
    """DCGM readings of all allocated replicas: averages over the last period. Costs what it costs once started."""

    def __init__(self, simulation: Simulation, pool: Pool) -> None:
        self._simulation = simulation
        self._pool = pool
        self._exporter = Exporter()
        self._started = False

    def start(self) -> None:
        """Read the devices from now on, if that is not done yet. The first reading covers all the time before."""
        if not self._started:
            self._started = True
            self._collect(max(DEVICE_PERIOD_S, self._simulation.now))

    def body(self) -> str:
        return self._exporter.render()

    def _collect(self, period_s: float) -> None:
        pool = self._pool
        slowdown = pool.placement.slowdown
        readings = [r.reading(pool.profile, period_s, slowdown(r.node)) for r in pool.allocated]
        self._exporter.collect(readings, period_s)
        self._simulation.after(DEVICE_PERIOD_S, self._collect, DEVICE_PERIOD_S)
