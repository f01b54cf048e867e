"""Noise keyed by kind and position alone: rounds that decide about one position share a number."""

from collections.abc import Sequence
from typing import Any, Self

import torch

from core.trees.noise import Key
from tests.laws.enumeration import WalkNoise

Part = tuple[Any, float, float]
"""(answer, start, end): uniform numbers from `start` to `end` give the answer."""


def by_position(key: Key) -> Key:
    """An engine key becomes (kind, decided position)."""
    kind, root = key[0], key[1]
    path = key[3] if kind == "draft" else key[2]
    # "accept" and "draft" keys have the parent's path, "final" keys the last node's path.
    return kind, root + len(path) + 1


class SharedNoise(WalkNoise):
    """`_known`: for each uniform number, the interval that earlier answers leave."""

    shared = staticmethod(by_position)

    def __init__(self, script: Sequence[int] = ()) -> None:
        super().__init__(script)
        self._known: dict[Key, tuple[float, float]] = {}
        self._answers = 0

    def coin(self, prob: float, key: Key) -> bool:
        return self._read(key, [(True, 0.0, prob), (False, prob, 1.0)])

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        ends = (weights.double().cumsum(dim=0) / weights.double().sum()).tolist()
        parts = zip(range(len(ends)), [0.0, *ends[:-1]], [*ends[:-1], 1.0], strict=True)
        return self._read(key, list(parts))

    def fork(self, script: Sequence[int] = ()) -> Self:
        other = super().fork(script)
        other._known = dict(self._known)
        return other

    def _read(self, key: Key, parts: list[Part]) -> Any:
        low, high = self._known.get(self.shared(key), (0.0, 1.0))
        cut = [(answer, max(low, start), min(high, end)) for answer, start, end in parts]
        shares = [(part, max(0.0, part[2] - part[1]) / (high - low)) for part in cut]
        self._answers += 1
        answer, start, end = self._answer((*key, self._answers), shares)
        self._known[self.shared(key)] = (start, end)
        return answer


class RepeatedNoise(SharedNoise):
    """Keys repeat: a draft made ahead for a round uses that round's keys."""

    shared = staticmethod(lambda key: key)
