"""Drafter weights: how much each drafter counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.config import SpeculationConfig
from core.config.mechanisms import combine_rule, draft_kind, routing_rule

__all__ = [
    "LikelihoodWeights",
    "LikelihoodHistory",
    "MinionsWeights",
    "DrafterWeights",
    "make_weights",
    "needs_likelihoods",
]

# After this many observations, MinionsWeights' running mean is exponential.
SLOWEST_MEAN = 64
# The decay of log-likelihoods with each token, so that a weight follows a change of the text.
FORGETTING = 0.95
# The least probability counted: one bad token cannot ruin a weight.
FLOOR = 1e-3
# Late reports count only for this many last tokens: 0.95^64 is less than 4 %.
CORRECTED = 64


@dataclass(slots=True)
class Token:
    """One committed token, the `at`-th that the weights count. `log_probs`: by drafter (NaN: no
    prediction); `counted_logs`: by drafter, the value for this token in the drafter's weight."""

    at: int
    log_probs: dict[str, float] = field(default_factory=dict)
    counted_logs: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class LikelihoodHistory:
    """The likelihoods observed for one text. `positions`: by drafter, the position after the last
    reported token; `tokens`: the text's last tokens by position; a drafter may report them late."""

    positions: dict[str, int] = field(default_factory=dict)
    tokens: dict[int, Token] = field(default_factory=dict)

    def advance(self, name: str, count: int, length: int, *, whole: bool) -> None:
        """Records that a drafter reported `count` tokens of a text of `length` tokens. `whole`:
        whether the drafter has read the whole text; a first report always counts as `whole`."""
        if whole or name not in self.positions:
            self.positions[name] = length
        else:
            self.positions[name] += count


class DrafterWeights(Protocol):
    """One weight per drafter, by name; their mean is about 1."""

    def values(self) -> dict[str, float]:
        """The current weights."""
        ...

    def observe_wins(self, wins: Sequence[tuple[str, float]]) -> None:
        """Updates by one batched verification. `wins`: the winner of each request's vote, and the
        accepted share of the winner's sequence."""
        ...

    def observe_likelihoods(
        self, probabilities: Mapping[str, Sequence[float]], history: LikelihoodHistory
    ) -> None:
        """Updates by each drafter's probabilities of the tokens since the drafter's last report;
        NaN without a prediction. `history` must have advanced already."""
        ...


class MinionsWeights:
    """Minions' rewards (arXiv 2402.15678). A winner's weight is multiplied by 1 + eta if the
    accepted share is above the running mean, and divided by 1 + eta if the share is below. Then all
    weights are scaled to a mean of 1 and clipped."""

    def __init__(self, config: SpeculationConfig, names: Iterable[str]) -> None:
        self._weights = dict.fromkeys(names, 1.0)
        self._factor = 1 + config.eta
        self._low, self._high = config.weight_bounds
        self._mean = 0.0
        self._num_shares = 0

    def values(self) -> dict[str, float]:
        return dict(self._weights)

    def observe_wins(self, wins: Sequence[tuple[str, float]]) -> None:
        by_winner: dict[str, list[float]] = {}
        for name, share in wins:
            by_winner.setdefault(name, []).append(share)
        if not by_winner:
            return
        # Each winner is rewarded once per batch, by its mean share.
        for name, shares in by_winner.items():
            self._reward(name, sum(shares) / len(shares))
        for shares in by_winner.values():
            for share in shares:
                self._num_shares += 1
                self._mean += (share - self._mean) / min(self._num_shares, SLOWEST_MEAN)
        average = sum(self._weights.values()) / len(self._weights)
        self._weights = {
            name: min(max(weight / average, self._low), self._high)
            for name, weight in self._weights.items()
        }

    def _reward(self, name: str, share: float) -> None:
        # The first batch has no running mean to compare with. Rounding may make equal shares differ
        # from their mean.
        if not self._num_shares or math.isclose(share, self._mean, abs_tol=1e-9):
            return
        factor = self._factor if share > self._mean else 1 / self._factor
        self._weights[name] *= factor

    def observe_likelihoods(
        self, probabilities: Mapping[str, Sequence[float]], history: LikelihoodHistory
    ) -> None:
        """Ignores likelihoods."""


class LikelihoodWeights:
    """w <- w^0.95 P(token) for each committed token.

    A drafter without a report or prediction gets the other drafters' mean log-probability of the
    token. A later report replaces this value.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._logs = dict.fromkeys(names, 0.0)
        self._tokens = 0

    def values(self) -> dict[str, float]:
        # Relative to the greatest: no exponential overflows.
        top = max(self._logs.values(), default=0.0)
        shares = {name: math.exp(value - top) for name, value in self._logs.items()}
        mean = sum(shares.values()) / max(1, len(shares))
        return {name: share / mean for name, share in shares.items()}

    def observe_wins(self, wins: Sequence[tuple[str, float]]) -> None:
        """Ignores wins."""

    def observe_likelihoods(
        self, probabilities: Mapping[str, Sequence[float]], history: LikelihoodHistory
    ) -> None:
        # A report ends at the position to which its drafter has read.
        by_position: dict[int, dict[str, float]] = {}
        for name, likelihoods in probabilities.items():
            for position, probability in enumerate(
                likelihoods, history.positions[name] - len(likelihoods)
            ):
                by_position.setdefault(position, {})[name] = _log(probability)
        for position in sorted(by_position):
            token = self._token(history.tokens, position)
            if token is not None:
                token.log_probs |= by_position[position]
                self._count(token)

    def _token(self, tokens: dict[int, Token], position: int) -> Token | None:
        """The text's token at a position; None if it is too old to be corrected."""
        # Insertion order is position order: the last key is the newest token.
        newest = next(reversed(tokens), position - 1)
        for place in range(max(newest, position - CORRECTED) + 1, position + 1):
            # One step of w <- w^0.95 for each token, even if no drafter has reported it yet.
            self._logs = {name: FORGETTING * value for name, value in self._logs.items()}
            self._tokens += 1
            tokens[place] = Token(self._tokens)
        while len(tokens) > CORRECTED:
            del tokens[next(iter(tokens))]
        return tokens.get(position)

    def _count(self, token: Token) -> None:
        log_probs = {name: log for name, log in token.log_probs.items() if not math.isnan(log)}
        average = sum(log_probs.values()) / len(log_probs) if log_probs else 0.0
        # The fraction of this token's value that remains in the weights; a correction is multiplied
        # by this fraction.
        share = FORGETTING ** (self._tokens - token.at)
        for name in self._logs:
            log = log_probs.get(name, average)
            self._logs[name] += share * (log - token.counted_logs.get(name, 0.0))
            token.counted_logs[name] = log


def _log(probability: float) -> float:
    if math.isnan(probability):
        return probability
    return math.log(min(1.0, max(probability, FLOOR)))


def make_weights(config: SpeculationConfig, names: Iterable[str]) -> DrafterWeights:
    """Equal weights for these drafters, updated by the configured rule."""
    return MinionsWeights(config, names) if config.weights == "paper" else LikelihoodWeights(names)


def needs_likelihoods(config: SpeculationConfig) -> bool:
    """Whether drafters must keep the probabilities of committed tokens."""
    by_likelihood = combine_rule(config.combine).weighted and config.weights == "full_information"
    by_credit = draft_kind(config.draft).by_credit
    return by_likelihood or by_credit or routing_rule(config.routing).reads_likelihoods
