"""How near a tie it was where two continuations part: float64, teacher-forced (law 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bench.theirs import load_module
from core.models.loading.catalog import bundled_llm
from core.trees.noise import SeededNoise

__all__ = ["Margins", "first_divergence"]


def first_divergence(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first index where they differ, also where only one has ended; None if they are equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


class Margins:
    """Loads the float64 model when first asked: most runs never part."""

    def __init__(self) -> None:
        self._module: Any = None

    @torch.inference_mode()
    def margin(
        self, context: Sequence[int], tokens: Sequence[int], temperature: float, seed: int
    ) -> float:
        """How far the worse of `tokens` lies under the best choice after `context`.

        At temperature 0 in logits; above, in log p + G(position) of that seed, which is what
        `match` compares. Both in float64.
        """
        if self._module is None:
            self._module = load_module(bundled_llm(), torch.float64)
        utilities = self._module(torch.tensor([list(context)])).logits[0, -1]
        if temperature > 0:
            noise = SeededNoise(seed, utilities.shape[-1])
            utilities = (utilities / temperature).log_softmax(-1) + noise.gumbel(len(context))
        return float(utilities.max() - utilities[list(tokens)].min())
