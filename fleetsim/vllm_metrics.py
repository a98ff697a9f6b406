"""The /metrics body of a simulated engine: names, labels, buckets and habits of vLLM 0.32.

Habits worth knowing, all as the real server does them: gauges move only when the engine steps (a hung
engine keeps its last ones); an aborted request leaves no trace in the per-request histograms nor under
`finished_reason="abort"`, only its tokens, TTFT and ITL samples stay; prompt tokens count when the prefill
ends and are not counted again after a preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fleetsim.engine import Engine, StepResult
from fleetsim.engine import Sequence as Request
from fleetsim.exposition import Family, Histogram, Value, one_two_five
from fleetsim.timing import Profile

TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
    640, 2560,
)  # fmt: skip
TOKEN_GAP_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
REQUEST_BOUNDS = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
ITERATION_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MAX_MODEL_LEN = 8192
PENDING_LIMIT = 1024  # requests


class EngineMetrics:
    """Everything one engine process exposes; `observe` after every step, `render` on every scrape."""

    def __init__(self, profile: Profile, model_name: str, start_time: float) -> None:
        self._base = {"engine": "0", "model_name": model_name}
        self._families: list[Family] = [
            Family(
                "process_start_time_seconds",
                "gauge",
                "Start time of the process since unix epoch in seconds.",
                [Value("process_start_time_seconds", {}, start_time)],
            )
        ]
        add, hist = self._value, self._histogram
        self._running = add("num_requests_running", "gauge", "Number of requests in model execution batches.")
        self._waiting = add("num_requests_waiting", "gauge", "Number of requests waiting to be processed.")
        by_reason = self._split(
            "num_requests_waiting_by_reason",
            "gauge",
            "Number of waiting requests by reason: capacity or deferred.",
            "reason",
            ("capacity", "deferred"),
        )
        self._capacity = by_reason["capacity"]
        sleep = self._split(
            "engine_sleep_state",
            "gauge",
            "Engine sleep state.",
            "sleep_state",
            ("awake", "weights_offloaded", "discard_all"),
        )
        sleep["awake"].value = 1.0
        self._kv_usage = add("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.")
        self._prefix_queries = add("prefix_cache_queries_total", "counter", "Prefix cache queries, in tokens.")
        self._prefix_hits = add("prefix_cache_hits_total", "counter", "Prefix cache hits, in tokens.")
        self._preemptions = add("num_preemptions_total", "counter", "Cumulative number of preemptions.")
        self._prompt_tokens = add("prompt_tokens_total", "counter", "Number of prefill tokens processed.")
        by_source = self._split(
            "prompt_tokens_by_source_total",
            "counter",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._computed, self._hit, self._external = by_source.values()
        self._cached = add(
            "prompt_tokens_cached_total", "counter", "Number of cached prompt tokens (local + external)."
        )
        self._generation_tokens = add("generation_tokens_total", "counter", "Number of generation tokens processed.")
        finished = self._split(
            "request_success_total",
            "counter",
            "Count of successfully processed requests.",
            "finished_reason",
            ("stop", "length", "abort", "error", "repetition"),
        )
        self._length = finished["length"]
        tokens = one_two_five(MAX_MODEL_LEN)
        self._request_prompt = hist("request_prompt_tokens", "Number of prefill tokens processed.", tokens)
        self._request_generation = hist("request_generation_tokens", "Number of generation tokens processed.", tokens)
        self._iteration = hist("iteration_tokens_total", "Number of tokens per engine_step.", ITERATION_BOUNDS)
        self._max_tokens = hist("request_params_max_tokens", "The max_tokens request parameter.", tokens)
        self._ttft = hist("time_to_first_token_seconds", "Time to first token in seconds.", TTFT_BOUNDS)
        self._itl = hist("inter_token_latency_seconds", "Inter-token latency in seconds.", TOKEN_GAP_BOUNDS)
        self._tpot = hist(
            "request_time_per_output_token_seconds",
            "Mean time per output token of a request.",
            TOKEN_GAP_BOUNDS,
        )
        self._e2e = hist("e2e_request_latency_seconds", "End-to-end request latency.", REQUEST_BOUNDS)
        self._queue = hist("request_queue_time_seconds", "Time spent in WAITING phase.", REQUEST_BOUNDS)
        self._inference = hist("request_inference_time_seconds", "Time spent in RUNNING phase.", REQUEST_BOUNDS)
        self._prefill = hist("request_prefill_time_seconds", "Time spent in PREFILL phase.", REQUEST_BOUNDS)
        self._decode = hist("request_decode_time_seconds", "Time spent in DECODE phase.", REQUEST_BOUNDS)
        self._preempted = hist(
            "request_num_preemptions", "Number of times a request was preempted.", (1, 2, 3, 4, 5, 10, 20)
        )
        config = {
            "engine": "0",
            "block_size": str(profile.block_size),
            "num_gpu_blocks": str(profile.num_blocks),
            "kv_cache_size_tokens": str(profile.num_blocks * profile.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "gpu_memory_utilization": "0.9",
            "num_cpu_blocks": "None",
        }
        self._families.append(
            Family(
                "vllm:cache_config_info",
                "gauge",
                "Information of the LLMEngine CacheConfig",
                [Value("vllm:cache_config_info", config, 1.0)],
            )
        )
        self._http: dict[tuple[str, str], Value] = {}
        # Requests that got their first or last token and are not counted yet: together they cost a fraction.
        self._began: list[Request] = []
        self._ended: list[Request] = []
        # An engine that skips ahead sets this to bring the values up to date when somebody looks.
        self.refresh: Callable[[], None] | None = None

    def observe(self, engine: Engine, result: StepResult) -> None:
        """Take in a finished step: its tokens, the requests it ended, and the gauges after it."""
        self._iteration.observe(result.new_tokens)
        for request in result.first_tokens:
            self.observe_first_token(request)
        for _, gap in result.gaps:
            self.observe_gap(gap)
        for request in result.finished:
            self.observe_finished(request)
        self.observe_gauges(engine)

    def observe_gauges(self, engine: Engine) -> None:
        """Publish the engine's queue, batch and KV cache as they are now."""
        self.set_gauges(len(engine.running), len(engine.waiting), engine.kv_usage, engine.preemptions)

    def set_gauges(self, running: int, waiting: int, kv_usage: float, preemptions: int) -> None:
        """Publish the queue, the batch and the KV cache (share of blocks in use), and the preemptions so far."""
        self._running.value = float(running)
        self._waiting.value = self._capacity.value = float(waiting)
        self._kv_usage.value = kv_usage
        self._preemptions.value = float(preemptions)

    def observe_step(self, new_tokens: int, gap: float, sequences: int) -> None:
        """A step has ended in which so many decoding sequences got a token, each `gap` seconds after its last."""
        self._iteration.observe_many(new_tokens, 1)
        if sequences:
            self._itl.observe_many(gap, sequences)
            self._generation_tokens.value += sequences

    def observe_gap(self, gap: float) -> None:
        """A sequence got a token, `gap` seconds after its last."""
        self._itl.observe(gap)
        self._generation_tokens.value += 1

    def observe_decodes(self, steps: int, batch: int, first_gap: float, increment: float) -> None:
        """A run of decode-only steps of one batch; their times rise by `increment` seconds from `first_gap` on."""
        self._iteration.observe_many(batch, steps)
        self._itl.observe_progression(first_gap, increment, steps, batch)
        self._generation_tokens.value += steps * batch

    def observe_first_token(self, request: Request) -> None:
        """A request's prefill has ended; it is counted with the next `settle`."""
        self._began.append(request)
        if len(self._began) >= PENDING_LIMIT:
            self.settle()

    def observe_finished(self, request: Request) -> None:
        """A request got its last token; it is counted with the next `settle`."""
        self._ended.append(request)
        if len(self._ended) >= PENDING_LIMIT:
            self.settle()

    def settle(self) -> None:
        """Count the requests that were observed since the last time. A prompt counts by where its KV came from."""
        if self._began:
            began, self._began = self._began, []
            self._ttft.observe_all([r.first_token_at - r.arrival for r in began if r.first_token_at is not None])
            prompt = sum(r.prompt_tokens for r in began)
            cached, transferred = sum(r.cached for r in began), sum(r.transferred for r in began)
            self._generation_tokens.value += len(began)
            self._prompt_tokens.value += prompt
            self._prefix_queries.value += prompt
            self._prefix_hits.value += cached
            self._computed.value += prompt - cached - transferred
            self._hit.value += cached
            self._external.value += transferred
            self._cached.value += cached + transferred
        if self._ended:
            ended, self._ended = self._ended, []
            self._length.value += len(ended)
            self._request_prompt.observe_all([float(r.prompt_tokens) for r in ended])
            self._request_generation.observe_all([float(r.generated) for r in ended])
            self._max_tokens.observe_all([float(r.max_tokens) for r in ended])
            self._preempted.observe_all([float(r.preemptions) for r in ended])
            spans = [_spans(r) for r in ended]
            for histogram, values in zip(
                (self._e2e, self._queue, self._inference, self._prefill, self._decode),
                zip(*spans, strict=True),
                strict=True,
            ):
                histogram.observe_all(list(values))
            after_first = [(span[4], r.generated - r.handed_over - 1) for span, r in zip(spans, ended, strict=True)]
            self._tpot.observe_all([decode / tokens for decode, tokens in after_first if tokens])

    def observe_http(self, handler: str, status: int) -> None:
        """Count an answer of the API; series appear with their first answer, as vLLM's do."""
        key = (handler, f"{status // 100}xx")
        if key not in self._http:
            labels = {"handler": handler, "method": "POST", "status": key[1]}
            self._http[key] = Value("http_requests_total", labels)
        self._http[key].value += 1

    def render(self) -> str:
        if self.refresh is not None:
            self.refresh()
        self.settle()
        http = Family(
            "http_requests_total",
            "counter",
            "Total number of requests by method, status and handler.",
            list(self._http.values()),
        )
        return "".join(family.text() for family in self._families) + http.text()

    def _value(self, name: str, kind: str, text: str) -> Value:
        series = Value(f"vllm:{name}", self._base)
        self._families.append(Family(f"vllm:{name}", kind, text, [series]))
        return series

    def _split(self, name: str, kind: str, text: str, label: str, values: Iterable[str]) -> Mapping[str, Value]:
        series = {v: Value(f"vllm:{name}", {**self._base, label: v}) for v in values}
        self._families.append(Family(f"vllm:{name}", kind, text, list(series.values())))
        return series

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        series = Histogram(f"vllm:{name}", self._base, bounds)
        self._families.append(Family(f"vllm:{name}", "histogram", text, [series]))
        return series


def _spans(request: Request) -> tuple[float, float, float, float, float]:
    """E2E, queue, inference, prefill and decode time (s) of a request that has finished."""
    scheduled, first, end = request.scheduled_at, request.first_token_at, request.finished_at
    assert scheduled is not None and first is not None and end is not None
    return end - request.arrival, scheduled - request.arrival, end - scheduled, first - scheduled, end - first
