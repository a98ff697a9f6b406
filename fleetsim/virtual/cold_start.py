"""How long a new replica takes until it serves.

A scenario gives the median; each start is drawn from a lognormal around it. `suggested_s` is a sum to take
the median from, with its parts as they are reported for vLLM: an assumption built on published figures, not a
measurement of one system.
"""

from __future__ import annotations

import random
from typing import Literal

from fleetsim.timing import Profile

BYTES_PER_S = {"network": 1e9, "nvme": 2.5e9, "page_cache": 10e9}
IMPORTS_S = 20.0  # Python, CUDA and the engine's own start
CACHED_COMPILE_S = 7.5
# torch.compile and the capture of CUDA graphs for models of the size of Llama 8B and 70B in bf16
SMALL_BYTES, LARGE_BYTES = 14e9, 137e9
COMPILE_S = (40.0, 90.0)
GRAPHS_S = (10.0, 30.0)


def suggested_s(
    profile: Profile,
    weights_on: Literal["network", "nvme", "page_cache"] = "nvme",
    *,
    node_s: float = 0.0,
    image_s: float = 0.0,
    compile_cached: bool = False,
) -> float:
    """Seconds from GPUs to serving: node + image + weights / rate + imports + compile + graphs.

    A node takes 0 s where one is free, else 120 to 600; an image 0 s where the node has it, else up to 120.
    Weights are read at 1 GB/s from the network, 2.5 from NVMe, 10 from the page cache. Compile and graphs lie
    between the figures for 8B and 70B by the size of the weights. Llama-3.1-70B bf16 on NVMe:
    55 + 20 + 90 + 30 = 195 s, with compiled kernels at hand 112 s.
    """
    size = (profile.weights_bytes - SMALL_BYTES) / (LARGE_BYTES - SMALL_BYTES)
    size = min(1.0, max(0.0, size))
    compile_s = CACHED_COMPILE_S if compile_cached else _between(COMPILE_S, size)
    weights_s = profile.weights_bytes / BYTES_PER_S[weights_on]
    return node_s + image_s + weights_s + IMPORTS_S + compile_s + _between(GRAPHS_S, size)


class ColdStarts:
    """Draws cold starts: the median times exp(N(0, sigma)). Each replica has a stream of its own."""

    def __init__(self, median_s: float, sigma: float, seed: int) -> None:
        self._median_s = median_s
        self._sigma = sigma
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def draw(self, replica: str) -> float:
        """Seconds that the replica's next start takes."""
        stream = self._streams.get(replica)
        if stream is None:
            stream = self._streams[replica] = random.Random(f"cold-start-{self._seed}-{replica}")
        return self._median_s * stream.lognormvariate(0.0, self._sigma)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share
