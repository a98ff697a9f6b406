"""What the gateway counts, and how Envoy shows it: the body of its admin /stats/prometheus.

Names and labels are those of a real Envoy 1.40 with the embedded fleet's bootstrap. Families that cannot move in this
model (sockets, TLS, HTTP/2, watchdogs, the runtime) are left out: every scrape would have to read them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from fleetsim.virtual.observation import GatewaySeen

if TYPE_CHECKING:
    from fleetsim.virtual.gateway import Gateway

CLUSTER = 'envoy_cluster_name="llm"'
LISTENER = 'envoy_http_conn_manager_prefix="ingress"'
HOST = 'envoy_virtual_host="llm"'
# Envoy's default buckets, milliseconds.
BOUNDS = (
    *(0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000),
    *(10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000),
)
_EDGES = (*(f"{bound:g}" if bound < 1 else str(bound) for bound in BOUNDS), "+Inf")


class Times:
    """A histogram of durations in milliseconds."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * len(_EDGES)
        self.sum_ms = 0.0

    def observe(self, ms: float) -> None:
        self.counts[bisect_left(BOUNDS, ms)] += 1
        self.sum_ms += ms

    def __add__(self, other: Times) -> Times:
        both = Times()
        both.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        both.sum_ms = self.sum_ms + other.sum_ms
        return both

    def lines(self, family: str, labels: str) -> str:
        totals = list(accumulate(self.counts))
        buckets = [f'{family}_bucket{{{labels},le="{le}"}} {n}\n' for le, n in zip(_EDGES, totals, strict=True)]
        return f"{''.join(buckets)}{family}_sum{{{labels}}} {self.sum_ms!r}\n{family}_count{{{labels}}} {totals[-1]}\n"


class Sent:
    """Counters of a virtual cluster: what was routed to the upstream cluster, and what came of it."""

    __slots__ = (
        "arrived",
        "codes",
        "retries",
        "retry_limit_exceeded",
        "retry_overflow",
        "retry_success",
        "timeouts",
        "times",
        "total",
    )

    def __init__(self) -> None:
        self.arrived = 0  # at the listener, shed or not
        self.total = 0  # tries that reached an endpoint
        self.codes: dict[int, int] = {}
        self.retries = self.retry_limit_exceeded = self.retry_overflow = self.retry_success = self.timeouts = 0
        self.times = Times()  # of successes

    def __add__(self, other: Sent) -> Sent:
        both = Sent()
        for name in ("arrived", "total", "retries", "retry_limit_exceeded", "retry_overflow", "retry_success"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        both.timeouts = self.timeouts + other.timeouts
        both.codes = {c: self.codes.get(c, 0) + other.codes.get(c, 0) for c in sorted({*self.codes, *other.codes})}
        both.times = self.times + other.times
        return both

    @property
    def completed(self) -> int:
        return sum(self.codes.values())

    def classes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for code, n in self.codes.items():
            found[code // 100] = found.get(code // 100, 0) + n
        return found


class GatewayStats:
    """Counters of the listener and the cluster; the virtual clusters `first` and `retry` have their own."""

    __slots__ = (
        "active_overflow",
        "answered_2xx",
        "answered_4xx",
        "answered_5xx",
        "client_left",
        "connect_failures",
        "direct_responses",
        "first",
        "none_healthy",
        "other_times",
        "pending_overflow",
        "pending_timeouts",
        "retry",
        "upstream_resets",
        "with_reset",
    )

    def __init__(self) -> None:
        self.first, self.retry = Sent(), Sent()
        self.answered_2xx = self.answered_4xx = self.answered_5xx = 0
        self.with_reset = self.client_left = 0  # ends without a whole answer: by us, by the client
        self.direct_responses = self.active_overflow = self.pending_overflow = self.pending_timeouts = 0
        self.none_healthy = self.connect_failures = self.upstream_resets = 0
        self.other_times = Times()  # of answers that are no success

    @property
    def completed(self) -> int:
        return self.answered_2xx + self.answered_4xx + self.answered_5xx


def seen(gateway: Gateway) -> GatewaySeen:
    """The same counters for policies that do not read text. `shed`: all that the gateway itself turned away, by shed
    routes, the admission filter, the breaker or a full queue.
    """
    stats = gateway.stats
    turned_away = stats.direct_responses + stats.active_overflow + stats.pending_overflow + stats.pending_timeouts
    return GatewaySeen(
        scraped_at=gateway.now,
        requests=stats.first.arrived + stats.retry.arrived,
        first_attempts=stats.first.arrived,
        retries=stats.retry.arrived,
        answered_2xx=stats.answered_2xx,
        answered_4xx=stats.answered_4xx,
        answered_5xx=stats.answered_5xx,
        shed=turned_away + (gateway.admission.rejected if gateway.admission is not None else 0),
        active=gateway.active,
        pending=gateway.pending,
    )


def render(gateway: Gateway) -> str:
    """The body of /stats/prometheus."""
    stats = gateway.stats
    both = stats.first + stats.retry
    return "".join(
        [
            _cluster(gateway, both),
            _listener(stats, both),
            _routes(both),
            _virtual_clusters((("first", stats.first), ("retry", stats.retry))),
            _optional(gateway),
            _endpoints(gateway),
        ]
    )


def _family(name: str, kind: str, samples: Iterable[tuple[str, float]]) -> str:
    return f"# TYPE {name} {kind}\n" + "".join([f"{name}{{{labels}}} {value}\n" for labels, value in samples])


def _cluster(gateway: Gateway, both: Sent) -> str:
    stats, c = gateway.stats, "envoy_cluster_"
    counters = {
        "upstream_cx_connect_fail": stats.connect_failures,
        "upstream_cx_none_healthy": stats.none_healthy,
        "upstream_cx_overflow": 0,
        "upstream_rq_active_overflow": stats.active_overflow,
        "upstream_rq_cancelled": 0,
        "upstream_rq_completed": both.completed,
        "upstream_rq_pending_failure_eject": stats.connect_failures,
        "upstream_rq_pending_overflow": stats.pending_overflow + stats.pending_timeouts,
        "upstream_rq_retry": both.retries,
        "upstream_rq_retry_backoff_exponential": both.retries,
        "upstream_rq_retry_limit_exceeded": both.retry_limit_exceeded,
        "upstream_rq_retry_overflow": both.retry_overflow,
        "upstream_rq_retry_success": both.retry_success,
        "upstream_rq_rx_reset": stats.upstream_resets,
        "upstream_rq_timeout": both.timeouts,
        "upstream_rq_total": both.total,
        "upstream_rq_tx_reset": 0,
    }
    endpoints = gateway.members.endpoints.values()
    gauges = {
        "circuit_breakers_default_rq_open": int(gateway.active >= gateway.limits.breaker),
        "circuit_breakers_default_rq_retry_open": int(gateway.retries_full),
        "membership_healthy": sum([e.healthy for e in endpoints]),
        "membership_total": len(endpoints),
        "upstream_rq_active": gateway.active,
        "upstream_rq_pending_active": gateway.pending,
    }
    return "".join(
        [
            *(f"# TYPE {c}{name} counter\n{c}{name}{{{CLUSTER}}} {value}\n" for name, value in counters.items()),
            _codes(f"{c}upstream_rq", both, CLUSTER),
            *(f"# TYPE {c}{name} gauge\n{c}{name}{{{CLUSTER}}} {value}\n" for name, value in gauges.items()),
            f"# TYPE {c}upstream_rq_time histogram\n",
            both.times.lines(f"{c}upstream_rq_time", CLUSTER),
        ]
    )


def _codes(name: str, sent: Sent, labels: str) -> str:
    """`_rq` by response code and `_rq_xx` by class; a series is there from the first answer of its kind."""
    if not sent.codes:
        return ""
    by_code = [(f'envoy_response_code="{code}",{labels}', n) for code, n in sorted(sent.codes.items())]
    by_class = [(f'envoy_response_code_class="{c}",{labels}', n) for c, n in sorted(sent.classes().items())]
    return _family(name, "counter", by_code) + _family(f"{name}_xx", "counter", by_class)


def _listener(stats: GatewayStats, both: Sent) -> str:
    h = "envoy_http_"
    ended = stats.completed + stats.client_left + stats.with_reset
    counters = {
        "downstream_rq_completed": stats.completed,
        "downstream_rq_rx_reset": stats.client_left,
        "downstream_rq_total": both.arrived,
        "downstream_rq_tx_reset": stats.with_reset,
        "rq_direct_response": stats.direct_responses,
        "rq_reset_after_downstream_response_started": stats.with_reset,
        "rq_total": both.arrived,
    }
    answered = {1: 0, 2: stats.answered_2xx, 3: 0, 4: stats.answered_4xx, 5: stats.answered_5xx}
    return "".join(
        [
            *(f"# TYPE {h}{name} counter\n{h}{name}{{{LISTENER}}} {value}\n" for name, value in counters.items()),
            _family(
                f"{h}downstream_rq_xx",
                "counter",
                ((f'envoy_response_code_class="{c}",{LISTENER}', n) for c, n in answered.items()),
            ),
            _family(f"{h}downstream_rq_active", "gauge", [(LISTENER, both.arrived - ended)]),
            f"# TYPE {h}downstream_rq_time histogram\n",
            (both.times + stats.other_times).lines(f"{h}downstream_rq_time", LISTENER),
        ]
    )


def _routes(both: Sent) -> str:
    v, serve = "envoy_vhost_route_upstream_rq", f'{HOST},envoy_route="serve"'
    counters = {
        "_completed": both.completed,
        "_retry": both.retries,
        "_retry_limit_exceeded": both.retry_limit_exceeded,
        "_retry_overflow": both.retry_overflow,
        "_retry_success": both.retry_success,
        "_timeout": both.timeouts,
        "_total": both.total,
    }
    lines = [f"# TYPE {v}{name} counter\n{v}{name}{{{serve}}} {value}\n" for name, value in counters.items()]
    return "".join([*lines, _codes(v, both, serve)])


def _virtual_clusters(clusters: tuple[tuple[str, Sent], ...]) -> str:
    v = "envoy_vhost_vcluster_upstream_rq"
    named = [(f'envoy_virtual_cluster="{name}",{HOST}', sent) for name, sent in clusters]
    families = {
        "_completed": [(labels, sent.completed) for labels, sent in named],
        "_retry": [(labels, sent.retries) for labels, sent in named],
        "_retry_limit_exceeded": [(labels, sent.retry_limit_exceeded) for labels, sent in named],
        "_retry_overflow": [(labels, sent.retry_overflow) for labels, sent in named],
        "_retry_success": [(labels, sent.retry_success) for labels, sent in named],
        "_timeout": [(labels, sent.timeouts) for labels, sent in named],
        "_total": [(labels, sent.total) for labels, sent in named],
    }
    by_code = [
        (f'envoy_response_code="{code}",{labels}', n) for labels, s in named for code, n in sorted(s.codes.items())
    ]
    by_class = [
        (f'envoy_response_code_class="{c}",{labels}', n) for labels, s in named for c, n in sorted(s.classes().items())
    ]
    return "".join(
        [
            *(_family(v + name, "counter", samples) for name, samples in families.items()),
            *([_family(v, "counter", by_code), _family(f"{v}_xx", "counter", by_class)] if by_code else []),
            f"# TYPE {v}_time histogram\n",
            *(sent.times.lines(f"{v}_time", labels) for labels, sent in named),
        ]
    )


def _optional(gateway: Gateway) -> str:
    """Of filters that are there only where they are configured."""
    out = ""
    if gateway.outlier is not None:
        outlier, o = gateway.outlier, "envoy_cluster_outlier_detection_ejections_"
        counters = {
            "detected_consecutive_5xx": outlier.detected["consecutive_5xx"],
            "detected_success_rate": outlier.detected["success_rate"],
            "enforced_consecutive_5xx": outlier.enforced["consecutive_5xx"],
            "enforced_success_rate": outlier.enforced["success_rate"],
            "enforced_total": sum(outlier.enforced.values()),
            "overflow": outlier.overflow,
        }
        out += "".join([_family(o + name, "counter", [(CLUSTER, value)]) for name, value in counters.items()])
        out += _family(f"{o}active", "gauge", [(CLUSTER, outlier.active)])
    if gateway.admission is not None:
        out += _family("envoy_http_admission_control_rq_rejected", "counter", [(LISTENER, gateway.admission.rejected)])
    return out


def _endpoints(gateway: Gateway) -> str:
    e, members = "envoy_cluster_endpoint_", gateway.members.endpoints.values()
    if not members:
        return ""
    families = (
        ("cx_connect_fail", "counter", [f"{m.labels} {m.connect_failures}" for m in members]),
        ("rq_error", "counter", [f"{m.labels} {m.rq_error}" for m in members]),
        ("rq_success", "counter", [f"{m.labels} {m.rq_success}" for m in members]),
        ("rq_timeout", "counter", [f"{m.labels} {m.rq_timeout}" for m in members]),
        ("rq_total", "counter", [f"{m.labels} {m.rq_total}" for m in members]),
        ("healthy", "gauge", [f"{m.labels} {int(m.healthy)}" for m in members]),
        ("rq_active", "gauge", [f"{m.labels} {m.active}" for m in members]),
    )
    return "".join(
        [
            f"# TYPE {e}{name} {kind}\n" + "".join([f"{e}{name}{sample}\n" for sample in samples])
            for name, kind, samples in families
        ]
    )
