"""Bound: the longest draft that still pays, moved only by clear evidence, so that it rests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Bound", "Step"]

CLEARLY_MORE, CLEARLY_LESS = 1.15, 0.85
DWELL = 2


@dataclass(frozen=True, slots=True)
class Step:
    """What one more step costs, and the accepted tokens it brings where drafts go well."""

    ms: float
    tokens: float

    def pays(self, price: float, times: float = 1.0) -> bool:
        """Whether its tokens are worth `times` its time at `price` tokens a millisecond."""
        return self.tokens > 0 and self.tokens >= times * price * self.ms


class Bound:
    """The current length; the first step is not its to decide."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._rested = 0

    def follow(self, steps: Sequence[Step], price: float) -> None:
        """Moves to the last step that pays, but at every other time of asking at most.

        `steps[i]` is the step from i to i + 1, as many as are possible.
        """
        self._rested += 1
        most = len(steps)
        if self.length > most:
            self._move(most)
        if self._rested < DWELL:
            return
        if self.length < 1:
            self._move(min(1, most))
        higher = _last(steps, self.length, price, CLEARLY_MORE)
        lower = _last(steps, 1, price, CLEARLY_LESS)
        if lower < self.length:
            self._move(lower)
        elif higher > self.length:
            self._move(higher)

    def _move(self, length: int) -> None:
        self.length = length
        self._rested = 0


def _last(steps: Sequence[Step], length: int, price: float, times: float) -> int:
    """How far one gets from a length by steps that each pay."""
    while length < len(steps) and steps[length].pays(price, times):
        length += 1
    return length
