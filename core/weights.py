"""Drafter weights, by rule: how much each drafter's word counts in a vote or a pool.

Fresh for each run, unless `carry_over` is set. Numbers only: knows no model and no tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from core.choices import WEIGHTED_COMBINES
from core.config import SpeculationConfig

__all__ = [
    "WEIGHT_RULES",
    "FullInformation",
    "Paper",
    "Weights",
    "make_weights",
    "needs_likelihoods",
]

SLOWEST_MEAN = 64
FORGETTING = 0.95
FLOOR = 1e-3


class Weights(Protocol):
    """One weight a drafter, by name; their mean is about 1."""

    def values(self) -> dict[str, float]:
        """The weights as they stand."""
        ...

    def won(self, wins: Sequence[tuple[str, float]]) -> None:
        """One verification of a batch: which drafter won each request's vote, and the share of its
        sequence that was accepted."""
        ...

    def foretold(self, probabilities: Mapping[str, Sequence[float]]) -> None:
        """The probabilities that each drafter gave to tokens committed since; NaN where it had
        nothing to say."""
        ...


class Paper:
    """Minions' rewards (ALGORITHMS 3): a winner above the running mean of all is multiplied by
    1 + eta, one below divided by it; then all are brought back to a mean of 1 and clipped.

    Only winners are judged. The running mean is that of all verifications, the last 64 counting
    most.
    """

    def __init__(self, config: SpeculationConfig, names: Iterable[str]) -> None:
        self._weights = dict.fromkeys(names, 1.0)
        self._factor = 1 + config.eta
        self._low, self._high = config.weight_bounds
        self._mean = 0.0
        self._seen = 0

    def values(self) -> dict[str, float]:
        return dict(self._weights)

    def won(self, wins: Sequence[tuple[str, float]]) -> None:
        by_winner: dict[str, list[float]] = {}
        for name, share in wins:
            by_winner.setdefault(name, []).append(share)
        if not by_winner:
            return
        for name, shares in by_winner.items():
            self._judge(name, sum(shares) / len(shares))
        for shares in by_winner.values():
            for share in shares:
                self._seen += 1
                self._mean += (share - self._mean) / min(self._seen, SLOWEST_MEAN)
        average = sum(self._weights.values()) / len(self._weights)
        self._weights = {
            name: min(max(weight / average, self._low), self._high)
            for name, weight in self._weights.items()
        }

    def _judge(self, name: str, share: float) -> None:
        # A running mean of thirds is seldom a third to the last bit.
        if not self._seen or math.isclose(share, self._mean, abs_tol=1e-9):
            return
        factor = self._factor if share > self._mean else 1 / self._factor
        self._weights[name] *= factor

    def foretold(self, probabilities: Mapping[str, Sequence[float]]) -> None:
        """The paper learns from wins alone."""


class FullInformation:
    """w is proportional to w^0.95 times the probability of each committed token (ALGORITHMS 3):
    every drafter is judged on every token, also where it lost the vote.

    Where a drafter had nothing to say it is neither praised nor blamed: it gets what the others
    get on average.
    """

    def __init__(self, config: SpeculationConfig, names: Iterable[str]) -> None:
        self._logs = dict.fromkeys(names, 0.0)
        self._average = math.log(FLOOR) / 2

    def values(self) -> dict[str, float]:
        top = max(self._logs.values(), default=0.0)
        shares = {name: math.exp(value - top) for name, value in self._logs.items()}
        mean = sum(shares.values()) / max(1, len(shares))
        return {name: share / mean for name, share in shares.items()}

    def won(self, wins: Sequence[tuple[str, float]]) -> None:
        """A win says nothing that the probabilities do not."""

    def foretold(self, probabilities: Mapping[str, Sequence[float]]) -> None:
        for name, found in probabilities.items():
            for probability in found:
                self._logs[name] = FORGETTING * self._logs[name] + self._log(probability)

    def _log(self, probability: float) -> float:
        if math.isnan(probability):
            return self._average
        value = math.log(min(1.0, max(probability, FLOOR)))
        self._average += (value - self._average) / SLOWEST_MEAN
        return value


WEIGHT_RULES: Mapping[str, Callable[[SpeculationConfig, Iterable[str]], Weights]] = (
    MappingProxyType({"full_information": FullInformation, "paper": Paper})
)


def make_weights(config: SpeculationConfig, names: Iterable[str]) -> Weights:
    """Even weights for these drafters, which the configured rule will change."""
    return WEIGHT_RULES[config.weights](config, names)


def needs_likelihoods(config: SpeculationConfig) -> bool:
    """Whether drafters must say how probable they held what was committed."""
    return config.combine in WEIGHTED_COMBINES and config.weights == "full_information"
