"""Noise whose sequences of answers can be enumerated."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch

from core.trees.noise import Key


class KeyAskedTwiceError(BaseException):
    """Two decisions would share one random number. Derives from BaseException, since the engine
    catches every `Exception`."""


class WalkNoise:
    """Follows `script`, then always takes the first possible answer. `branches`: (index taken,
    number possible) for each answer."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        self.script = tuple(script)
        self.branches: list[tuple[int, int]] = []
        self.probability = 1.0
        self.asked: set[Key] = set()

    def coin(self, prob: float, key: Key) -> bool:
        return self._answer(key, [(True, prob), (False, 1.0 - prob)])

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        shares = (weights.double() / weights.double().sum()).tolist()
        return self._answer(key, list(enumerate(shares)))

    def gumbel(self, position: int) -> torch.Tensor:
        raise AssertionError(f"the target's noise at {position} is for `match` alone")

    def fork(self, script: Sequence[int] = ()) -> Self:
        """A copy that refuses the keys asked so far."""
        other = copy.copy(self)
        other.script, other.branches, other.probability = tuple(script), [], 1.0
        other.asked = set(self.asked)
        return other

    def _answer(self, key: Key, options: Sequence[tuple[Any, float]]) -> Any:
        if key in self.asked:
            raise KeyAskedTwiceError(f"{key} was asked before")
        self.asked.add(key)
        possible = [(value, prob) for value, prob in options if prob > 0.0]
        step = len(self.branches)
        taken = self.script[step] if step < len(self.script) else 0
        self.branches.append((taken, len(possible)))
        self.probability *= possible[taken][1]
        return possible[taken][0]


def every_walk(
    run: Callable[[WalkNoise], Any],
    prefix: Sequence[int] = (),
    kind: Callable[[Sequence[int]], WalkNoise] | None = None,
) -> Iterator[tuple[WalkNoise, Any]]:
    """Runs `run` once for each sequence of answers that begins with `prefix`."""
    script: tuple[int, ...] | None = tuple(prefix)
    while script is not None:
        noise = (kind or WalkNoise)(script)
        yield noise, run(noise)
        script = _next(noise.branches, len(prefix))


def _next(branches: Sequence[tuple[int, int]], fixed: int) -> tuple[int, ...] | None:
    for i in range(len(branches) - 1, fixed - 1, -1):
        taken, possible = branches[i]
        if taken + 1 < possible:
            return (*(t for t, _ in branches[:i]), taken + 1)
    return None
