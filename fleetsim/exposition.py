"""Counters, gauges and histograms of one simulated exporter, written in the Prometheus text format.

A family keeps its lines' fixed part ready, so that rendering a body is one pass of number formatting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence


def labels_text(labels: Mapping[str, str]) -> str:
    """`{a="x",b="y"}` with the names sorted, or nothing; values are escaped as the format asks."""
    if not labels:
        return ""
    escaped = ((k, v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')) for k, v in sorted(labels.items()))
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}"


def header(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


class Value:
    """One counter or gauge series."""

    __slots__ = ("_prefix", "value")

    def __init__(self, name: str, labels: Mapping[str, str], value: float = 0.0) -> None:
        self._prefix = name + labels_text(labels)
        self.value = value

    def lines(self) -> str:
        return f"{self._prefix} {float(self.value)!r}\n"


class Histogram:
    """One histogram series; `bounds` are the finite upper bounds in rising order."""

    __slots__ = ("_bounds", "_count_prefix", "_prefixes", "_sum_prefix", "counts", "sum")

    def __init__(self, name: str, labels: Mapping[str, str], bounds: Sequence[float]) -> None:
        edges = [repr(float(b)) for b in bounds] + ["+Inf"]
        self._prefixes = [f"{name}_bucket{labels_text({**labels, 'le': edge})}" for edge in edges]
        self._count_prefix = f"{name}_count{labels_text(labels)}"
        self._sum_prefix = f"{name}_sum{labels_text(labels)}"
        self._bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # a bucket, not accumulated; the last has no upper bound
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        """Each of the values. Sorted, they cost one look-up a bound, however many they are."""
        values.sort()
        counts, below = self.counts, 0
        for bucket, bound in enumerate(self._bounds):
            upto = bisect_right(values, bound, below)
            counts[bucket] += upto - below
            below = upto
        counts[-1] += len(values) - below
        self.sum += sum(values)

    def observe_many(self, value: float, times: int) -> None:
        """The same value so many times over."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def observe_progression(self, first: float, increment: float, steps: int, times: int) -> None:
        """`first`, `first + increment`, ... (`steps` values, `increment` >= 0), each `times` times over.

        Costs a few buckets, however many values there are, and counts as if each were observed.
        """
        bounds, counts = self._bounds, self.counts
        bucket, last = bisect_left(bounds, first), bisect_left(bounds, first + increment * (steps - 1))
        counted = 0
        while bucket < last:
            # How many of the values lie at or below the bound; the division may be off by one, the values decide.
            below = int((bounds[bucket] - first) / increment) + 1
            while first + increment * below <= bounds[bucket]:
                below += 1
            while first + increment * (below - 1) > bounds[bucket]:
                below -= 1
            counts[bucket] += times * (below - counted)
            counted = below
            bucket += 1
        counts[bucket] += times * (steps - counted)
        self.sum += times * (steps * first + increment * (steps * (steps - 1) / 2))

    def lines(self) -> str:
        out: list[str] = []
        total = 0
        for prefix, n in zip(self._prefixes, self.counts, strict=True):
            total += n
            out.append(f"{prefix} {float(total)!r}\n")
        out.append(f"{self._count_prefix} {float(total)!r}\n{self._sum_prefix} {self.sum!r}\n")
        return "".join(out)


class Family:
    """A family: its HELP and TYPE lines and the series under them."""

    __slots__ = ("_header", "_series")

    def __init__(self, name: str, kind: str, text: str, series: Sequence[Value | Histogram]) -> None:
        self._header = header(name, kind, text)
        self._series = tuple(series)

    def text(self) -> str:
        return self._header + "".join(series.lines() for series in self._series)


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `limit`: the bounds vLLM gives to token-count histograms."""
    bounds: list[float] = []
    decade = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * decade > limit:
                return tuple(bounds)
            bounds.append(float(mantissa * decade))
        decade *= 10
