"""Random draws: one generator a purpose, so that one purpose's draws never shift another's."""

from __future__ import annotations

import random

import numpy as np

BLOCK = 4096  # values drawn at a time: numpy's overhead vanishes and memory stays small


def generator(purpose: str) -> np.random.Generator:
    """A numpy generator for a purpose (a name and a seed in one string), the same on every machine."""
    return np.random.default_rng(random.Random(purpose).getrandbits(128))
