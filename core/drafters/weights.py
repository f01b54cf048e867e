"""Drafter weights, by rule: how much each drafter's word counts in a vote or a pool.

Fresh for each run, unless `carry_over` is set. Numbers only: knows no model and no tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from core.config import SpeculationConfig
from core.config.mechanisms import combine_rule

__all__ = [
    "WEIGHT_RULES",
    "FullInformation",
    "LikelihoodHistory",
    "Paper",
    "Weights",
    "make_weights",
    "needs_likelihoods",
]

SLOWEST_MEAN = 64
FORGETTING = 0.95
FLOOR = 1e-3
# What lies further back counts for less than 4 %: it is not corrected any more.
CORRECTED = 64


@dataclass(slots=True)
class Token:
    """What was told of one token, as logarithms (NaN: nothing to say), and what each drafter was
    `counted` for it when `at` tokens had been counted in all."""

    at: int
    told: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class LikelihoodHistory:
    """What drafters told of one text. `reached`: the position behind the last token that each told
    of; `tokens`: the text's last ones, by position, of which a drafter that lags may yet tell."""

    reached: dict[str, int] = field(default_factory=dict)
    tokens: dict[int, Token] = field(default_factory=dict)

    def reach(self, name: str, count: int, length: int, *, whole: bool) -> None:
        """A drafter told of `count` tokens of a text of `length`. `whole`: it has read all of it,
        as it has when it is first heard; else it went on from where it was."""
        if whole or name not in self.reached:
            self.reached[name] = length
        else:
            self.reached[name] += count


class Weights(Protocol):
    """One weight a drafter, by name; their mean is about 1."""

    def values(self) -> dict[str, float]:
        """The weights as they stand."""
        ...

    def won(self, wins: Sequence[tuple[str, float]]) -> None:
        """One verification of a batch: which drafter won each request's vote, and the share of its
        sequence that was accepted."""
        ...

    def foretold(
        self, probabilities: Mapping[str, Sequence[float]], heard: LikelihoodHistory | None = None
    ) -> None:
        """The probabilities that each drafter gave to tokens committed since it last told; NaN
        where it had nothing to say. `heard`: how far each has come in this text with them; without
        it all begin at one token, the text's next."""
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

    def foretold(
        self, probabilities: Mapping[str, Sequence[float]], heard: LikelihoodHistory | None = None
    ) -> None:
        """The paper learns from wins alone."""


class FullInformation:
    """w is proportional to w^0.95 times the probability of each committed token (ALGORITHMS 3):
    every drafter is judged on every token, also where it lost the vote.

    Where a drafter had nothing to say, or has not told yet, it is neither praised nor blamed: of
    that token it gets what the others get on average. What it tells later takes that one's place.
    """

    def __init__(self, config: SpeculationConfig, names: Iterable[str]) -> None:
        self._logs = dict.fromkeys(names, 0.0)
        self._tokens = 0

    def values(self) -> dict[str, float]:
        top = max(self._logs.values(), default=0.0)
        shares = {name: math.exp(value - top) for name, value in self._logs.items()}
        mean = sum(shares.values()) / max(1, len(shares))
        return {name: share / mean for name, share in shares.items()}

    def won(self, wins: Sequence[tuple[str, float]]) -> None:
        """A win says nothing that the probabilities do not."""

    def foretold(
        self, probabilities: Mapping[str, Sequence[float]], heard: LikelihoodHistory | None = None
    ) -> None:
        heard = heard or LikelihoodHistory(
            {name: len(found) for name, found in probabilities.items()}
        )
        told: dict[int, dict[str, float]] = {}
        for name, found in probabilities.items():
            for position, probability in enumerate(found, heard.reached[name] - len(found)):
                told.setdefault(position, {})[name] = _log(probability)
        for position in sorted(told):
            token = self._token(heard.tokens, position)
            if token is not None:
                token.told |= told[position]
                self._count(token)

    def _token(self, tokens: dict[int, Token], position: int) -> Token | None:
        """The text's token there; None where it lies too far back to be corrected."""
        newest = next(reversed(tokens), position - 1)
        for place in range(max(newest, position - CORRECTED) + 1, position + 1):
            self._logs = {name: FORGETTING * value for name, value in self._logs.items()}
            self._tokens += 1
            tokens[place] = Token(self._tokens)
        while len(tokens) > CORRECTED:
            del tokens[next(iter(tokens))]
        return tokens.get(position)

    def _count(self, token: Token) -> None:
        """Counts what is now known of a token, in place of what was counted for it before."""
        said = {name: log for name, log in token.told.items() if not math.isnan(log)}
        average = sum(said.values()) / len(said) if said else 0.0
        share = FORGETTING ** (self._tokens - token.at)
        for name in self._logs:
            log = said.get(name, average)
            self._logs[name] += share * (log - token.counted.get(name, 0.0))
            token.counted[name] = log


def _log(probability: float) -> float:
    if math.isnan(probability):
        return probability
    return math.log(min(1.0, max(probability, FLOOR)))


WEIGHT_RULES: Mapping[str, Callable[[SpeculationConfig, Iterable[str]], Weights]] = (
    MappingProxyType({"full_information": FullInformation, "paper": Paper})
)


def make_weights(config: SpeculationConfig, names: Iterable[str]) -> Weights:
    """Even weights for these drafters, which the configured rule will change."""
    return WEIGHT_RULES[config.weights](config, names)


def needs_likelihoods(config: SpeculationConfig) -> bool:
    """Whether drafters must say how probable they held what was committed."""
    return combine_rule(config.combine).weighted and config.weights == "full_information"
