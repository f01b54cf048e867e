"""Two texts may differ only if the two tokens at their first difference nearly tie."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from core import SamplingParams
from core.trees.noise import SeededNoise
from core.trees.sampling import penalize_repetition, process_logits
from lab.texts import first_difference

NEAR_TIE = 1e-4


class Divergences:
    def __init__(self, module: Any) -> None:
        self._module = module
        self.prompts: set[tuple[int, ...]] = set()

    def check(
        self,
        prompt_ids: Sequence[int],
        got: Sequence[int],
        expected: Sequence[int],
        sampling: SamplingParams,
    ) -> None:
        """At most one prompt's texts may differ."""
        position = first_difference(got, expected)
        if position is None:
            return
        assert position < min(len(got), len(expected)), f"{got} ends elsewhere than {expected}"
        context = (*prompt_ids, *expected[:position])
        margin = self.margin(context, got[position], expected[position], sampling)
        print(
            f"divergence after {len(context)} tokens: {got[position]} for {expected[position]}, "
            f"{margin:.3g}"
        )
        assert margin < NEAR_TIE, (
            f"token {position}: {got[position]} for {expected[position]}, margin {margin:.3g}"
        )
        self.prompts.add(tuple(prompt_ids))
        assert len(self.prompts) <= 1, "more than one prompt diverged"

    def margin(
        self, context: Sequence[int], one: int, other: int, sampling: SamplingParams
    ) -> float:
        """The difference between the two tokens' scores: logits if greedy, else processed logits
        plus noise."""
        with torch.inference_mode():
            logits = _double(self._module)(input_ids=torch.tensor([list(context)])).logits[0, -1]
        scores = logits
        if sampling.penalizes:
            penalty = sampling.repetition_penalty
            scores = logits = penalize_repetition(logits[None], penalty, context, [()])[0]
        if not sampling.greedy:
            gumbel = SeededNoise(sampling.seed, len(logits)).gumbel(len(context))
            scores = process_logits(logits[None], sampling)[0].double() + gumbel
        return float((scores[one] - scores[other]).abs())


@cache
def _double(module: Any) -> Any:
    return copy.deepcopy(module).double().eval()
