"""Rates over time as derived from ServeGen (alibaba/ServeGen, Apache-2.0): a profile, not arrivals.

Columns timestamp_s (start of a window) and rate_req_per_s (its mean rate). Windows are equally long; one that is not
there is a gap, of which nothing is known. A rate of 0 in a window that is there is a rate of 0.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetsim.traffic.rate import FloatArray, Rate
from fleetsim.traffic.rows import TraceError, seconds, table

COLUMNS = ("timestamp_s", "rate_req_per_s")


def recognises(first: str) -> bool:
    return first.startswith("timestamp_s")


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Mean rates of windows of `window_s` seconds from `starts_s[0]` on."""

    starts_s: FloatArray  # n, seconds, ascending
    rates: FloatArray  # n, requests/s
    window_s: float

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Stretches (from, to) in seconds that no window covers."""
        ends = self.starts_s[:-1] + self.window_s
        holes = np.flatnonzero(self.starts_s[1:] - ends > self.window_s / 2)
        return [(float(ends[i]), float(self.starts_s[i + 1])) for i in holes]

    def summary(self) -> dict[str, float | int]:
        """Figures of the profile; rates in requests/s."""
        p5, p95 = np.percentile(self.rates, (5, 95)).tolist()
        return {
            "windows": self.rates.size,
            "window_s": self.window_s,
            "mean_rate": float(self.rates.mean()),
            "p5_rate": p5,
            "p95_rate": p95,
            "max_rate": float(self.rates.max()),
            "zero_windows": int((self.rates == 0).sum()),
            "gaps": len(self.gaps),
        }

    def rate(self, mean: float | None = None, gap_rate: float | None = None) -> Rate:
        """The profile as a rate of time that begins at 0 and ends (rate 0) with the last window. `mean` scales it to
        that mean over its windows. What is offered in gaps must be said (requests/s, after scaling), for a missing
        window is no rate of zero: ValueError where there are gaps and it is not.
        """
        gaps = self.gaps
        if gaps and gap_rate is None:
            raise ValueError(f"expected a rate for {len(gaps)} gaps, first {gaps[0]} s, found none: give gap_rate")
        own = float(self.rates.mean())
        if mean is not None and own == 0:
            raise ValueError("expected a profile with a rate above 0 to scale, found zeros only: leave `mean` out")
        scaled = self.rates if mean is None else self.rates * (mean / own)
        points = dict(zip(self.starts_s.tolist(), scaled.tolist(), strict=True))
        if gap_rate is not None:
            points |= dict.fromkeys((start for start, _ in gaps), gap_rate)
        points[float(self.starts_s[-1]) + self.window_s] = 0.0
        times = np.array(sorted(points))
        levels = np.array([points[t] for t in times.tolist()])
        return Rate.held(times - times[0], levels)


def read_profile(path: Path) -> RateProfile:
    """The whole profile (16 bytes a window). Times must ascend in whole multiples of the shortest step."""
    starts, rates = array("d"), array("d")
    rows = table(path, COLUMNS)
    next(rows)
    for line, (start, rate) in rows:
        now = seconds(start, path, line, "1 (timestamp_s)")
        if starts and now <= starts[-1]:
            expected = f"a time after the row above ({starts[-1]})"
            raise TraceError(path, line, "1 (timestamp_s)", expected, start, "sort the file, one row a window")
        starts.append(now)
        rates.append(seconds(rate, path, line, "2 (rate_req_per_s)"))
    if len(starts) == 1:
        raise TraceError(
            path, 3, "1", "a second window (its time tells their length)", "the end of the file", "add rows"
        )
    times = np.array(starts)
    steps = np.diff(times)
    window = float(steps.min())
    off = np.abs(steps / window - np.round(steps / window)) > 1e-6
    if off.any():
        at = int(off.argmax()) + 1
        expected = f"a multiple of {window} s after the row above"
        raise TraceError(path, at + 2, "1 (timestamp_s)", expected, str(times[at]), "use windows of one length")
    return RateProfile(times, np.array(rates), window)
