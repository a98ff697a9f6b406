"""Success per dollar: what the pool's allocated replicas cost and how many requests they served well."""

from __future__ import annotations

from analyzers.build import measure, pool_scope, window
from analyzers.capacity import finished_rate
from analyzers.fleet import known_sum, pool_rows
from analyzers.model import Context, Measure, Report, Slo
from collector.history import History
from collector.model import Frame, Histogram, Level

WINDOW_S = 60.0
SECONDS_PER_HOUR = 3600.0


def analyze(history: History, frame: Frame, context: Context, now: float) -> Report:
    span = window(context, WINDOW_S)
    measures: list[Measure] = []
    for name, pool in frame.topology.pools.items():
        scope, settings = pool_scope(name), context.settings(name)
        rows = pool_rows(frame, name)
        finished = known_sum(finished_rate(history, rows, span, settings.success_reasons))
        shares = _within_slo(history, pool.endpoints, span, settings.slo)
        low, high = (None, None) if finished is None or shares is None else (finished * shares[0], finished * shares[1])
        # Every allocated replica costs: warming, idle and draining ones are in the topology too.
        gpus = sum(frame.topology.endpoints[e].gpus for e in pool.endpoints if e in frame.topology.endpoints)
        cost_per_hour = gpus * settings.price_usd_per_gpu_hour
        measures += [
            measure("cost_usd_per_hour", scope, cost_per_hour, "USD/h"),
            measure("finished_rate", scope, finished, "1/s"),
            measure("slo_goodput_rate_lower", scope, low, "1/s"),
            measure("slo_goodput_rate_upper", scope, high, "1/s"),
            measure("success_per_dollar", scope, _per_dollar(low, cost_per_hour), "1/USD"),
            measure("success_per_dollar_upper", scope, _per_dollar(high, cost_per_hour), "1/USD"),
            measure("cost_usd_per_success", scope, _inverse(_per_dollar(low, cost_per_hour)), "USD"),
        ]
    return Report((), tuple(measures))


def _per_dollar(successes_per_s: float | None, cost_per_hour: float) -> float | None:
    if successes_per_s is None or cost_per_hour <= 0:
        return None
    return successes_per_s * SECONDS_PER_HOUR / cost_per_hour


def _inverse(value: float | None) -> float | None:
    return 1 / value if value is not None and value > 0 else None


def _within_slo(history: History, endpoints: tuple[str, ...], span: float, slo: Slo) -> tuple[float, float] | None:
    """Lower and upper bound of the share of requests within both objectives.

    Histograms hold each objective's share, not the joint one: Fréchet's bounds are max(0, a + b - 1) and
    min(a, b). Objectives between two bucket bounds widen the interval further.
    """
    ttft = _share(history, endpoints, "ttft", span, slo.ttft_s)
    tpot = _share(history, endpoints, "tpot", span, slo.tpot_s) or _share(history, endpoints, "itl", span, slo.tpot_s)
    if ttft is None or tpot is None:
        return None
    return max(0.0, ttft[0] + tpot[0] - 1), min(ttft[1], tpot[1])


def _share(
    history: History, endpoints: tuple[str, ...], signal: str, span: float, bound: float
) -> tuple[float, float] | None:
    low = high = count = 0.0
    for name in endpoints:
        delta: Histogram | None = history.delta(Level.ENDPOINT, name, signal, span)
        share = delta.share_at_most(bound) if delta is not None else None
        if delta is None or share is None:
            continue
        low, high, count = low + share[0] * delta.count, high + share[1] * delta.count, count + delta.count
    return (low / count, high / count) if count > 0 else None
