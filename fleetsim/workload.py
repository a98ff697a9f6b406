"""Lengths of requests: what a client asks for."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompt and output lengths, uniform between bounds (tokens, both ends included)."""

    prompt_tokens: tuple[int, int] = (300, 700)
    output_tokens: tuple[int, int] = (100, 200)

    def sample(self, rng: random.Random, prompt_scale: float = 1.0) -> tuple[int, int]:
        """One request's prompt and output length; `prompt_scale` stretches the prompt."""
        prompt = round(rng.randint(*self.prompt_tokens) * prompt_scale)
        return max(1, prompt), rng.randint(*self.output_tokens)
