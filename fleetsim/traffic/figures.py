"""The figures by which traffic is judged, of a stream of any origin, in one pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fleetsim.traffic.arrival import Stream

REUSE_BLOCK = 512  # tokens


@dataclass(frozen=True, slots=True)
class Spread:
    """Of lengths in tokens; percentiles interpolated between order statistics."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Windows (seconds, minutes) count from the first arrival; the last one may be cut short and counts."""

    requests: int
    duration_s: float  # first to last arrival
    mean_rate: float | None  # requests/s; None when the arrivals take no time
    peak_minute: float  # requests/s of the fullest minute
    dispersion_1s: float  # variance / mean of the counts of seconds
    prompt: Spread
    output: Spread
    block_reuse: float | None  # share of 512-token prompt blocks an infinite cache has; None: no arrival has a prefix


class _Windows:
    """Counts of equal windows as they pass: nothing is stored but sums."""

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self.squares = self.fullest = self._count = 0
        self.last = 0

    def add(self, t: float) -> None:
        now = int(t // self.width_s)
        if now != self.last:
            self.close()
            self.last, self._count = now, 0
        self._count += 1

    def close(self) -> None:
        self.squares += self._count * self._count
        self.fullest = max(self.fullest, self._count)


def measure(stream: Stream) -> Figures:
    """Memory grows with the number of distinct lengths and, if there are prefixes, of distinct chunks (an infinite
    cache remembers them all). ValueError for an empty stream: there is nothing to measure.
    """
    seconds, minutes = _Windows(1.0), _Windows(60.0)
    prompts: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    seen: set[int] = set()
    requests = blocks = reused = 0
    first: float | None = None
    t = 0.0
    for arrival in stream:
        if first is None:
            first = arrival.t
        t = arrival.t - first
        seconds.add(t)
        minutes.add(t)
        requests += 1
        prompt = arrival.prompt_tokens
        prompts[prompt] += 1
        outputs[arrival.output_tokens] += 1
        blocks += -(-prompt // REUSE_BLOCK)
        if arrival.prefix:
            shared = _shared(arrival.prefix, seen)
            # A partial block is reusable only by a prompt that ends with it.
            reused += -(-prompt // REUSE_BLOCK) if shared == prompt else shared // REUSE_BLOCK
    if first is None:
        raise ValueError("expected at least one arrival, found none: widen the window or raise the rate")
    seconds.close()
    minutes.close()
    count = seconds.last + 1
    mean = requests / count
    return Figures(
        requests,
        t,
        requests / t if t > 0 else None,
        minutes.fullest / 60,
        (seconds.squares / count - mean * mean) / mean,
        _spread(prompts, requests),
        _spread(outputs, requests),
        reused / blocks if seen else None,
    )


def _shared(prefix: tuple[tuple[int, int], ...], seen: set[int]) -> int:
    """Leading tokens that are in the cache; afterwards all of the prefix is."""
    shared = 0
    known = True
    for key, tokens in prefix:
        if known and key in seen:
            shared += tokens
        else:
            known = False
            seen.add(key)
    return shared


def _spread(lengths: Counter[int], count: int) -> Spread:
    ordered = sorted(lengths)
    total = sum(length * times for length, times in lengths.items())
    return Spread(total / count, _quantile(lengths, ordered, count, 0.5), _quantile(lengths, ordered, count, 0.99))


def _quantile(lengths: Counter[int], ordered: list[int], count: int, share: float) -> float:
    place = share * (count - 1)
    below = int(place)
    passed = 0
    for at, length in enumerate(ordered):
        passed += lengths[length]
        if passed > below:
            following = length if passed > below + 1 or at + 1 == len(ordered) else ordered[at + 1]
            return length + (place - below) * (following - length)
    raise AssertionError("a share below 1 lies within the counts")
