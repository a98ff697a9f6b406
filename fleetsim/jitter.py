"""Jitter of step times: a factor drawn anew each second, the same for whoever asks.

Real engines' steps scatter by 5 to 15 % of the inter-token latency (llm-d-inference-sim models them as a
Gaussian capped at 70 % of the mean). The factor is constant within a window and depends only on seed, engine
and window, so that an engine that skips steps meets the same factors as one that takes each.
"""

from __future__ import annotations

import random

WINDOW_S = 1.0
CAP = 0.7


class Jitter:
    """Factors of one engine's step times. `sd` is the standard deviation as a share of the mean."""

    __slots__ = ("_factor", "_name", "_sd", "_window")

    def __init__(self, sd: float, *, seed: int, name: str) -> None:
        if not 0 <= sd <= 1:
            raise ValueError(f"expected a standard deviation between 0 and 1, found {sd}: give a share of the mean")
        self._sd = sd
        self._name = f"jitter-{seed}-{name}"
        self._window: int | None = None
        self._factor = 1.0

    def factor(self, start: float) -> float:
        """Factor of a step that starts at `start` (seconds): 1 +- 0.7 at most."""
        window = int(start // WINDOW_S)
        if window != self._window:
            noise = random.Random(f"{self._name}-{window}").gauss(0.0, self._sd)
            self._window, self._factor = window, 1.0 + max(-CAP, min(CAP, noise))
        return self._factor

    @staticmethod
    def window_end(start: float) -> float:
        """When the window that contains `start` is over."""
        return (start // WINDOW_S + 1) * WINDOW_S
