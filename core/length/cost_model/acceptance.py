"""How far drafts are accepted: rates by depth, and what a drafter's scores are worth, both learnt
online and both forgetting, so that they follow a text that changes its character.

A run begins with what all runs of a drafter came to (its record): a text's first rounds are too few
to tell a good drafter from a bad one. Knows no drafter: depths, chances and outcomes only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["Acceptance", "Odds", "Rates"]

# An own try is forgotten over 40 tries; unvisited depths over 160 drafts, so that they are tried
# again now and then.
KEEP_TRIED, KEEP_UNTRIED = 1 - 1 / 40, 1 - 1 / 160
KEEP_RECORDED = 1 - 1 / 400
PRIOR, PRIOR_TRIES, SHRINK = 0.7, 4.0, 4.0
# A record of fewer tries says nothing; one of more weighs as so many own tries.
RECORDED, RECORD_TRIES = 16.0, 10.0


class Rates:
    """`upto(n)[d - 1]`: P(a token of depth d is accepted | one of depth d - 1 was and another step
    was run). Each depth is drawn towards its record's, where there is one, else towards the one
    above it, the first towards an optimistic 0.7. What is observed goes into the record too."""

    def __init__(self, record: Rates | None = None, keep: float = KEEP_TRIED) -> None:
        self._hits: list[float] = []
        self._tries: list[float] = []
        self._record, self._keep = record, keep
        self._before = record.known() if record is not None else []

    def known(self) -> list[float]:
        """The rates of depths that were tried often enough to be told."""
        often = next((i for i, n in enumerate(self._tries) if n < RECORDED), len(self._tries))
        return self.upto(often)

    def observe(self, reached: int, tried: int) -> None:
        """A draft of `tried` steps whose first `reached` depths were accepted."""
        if self._record is not None:
            self._record.observe(reached, tried)
        missing = tried - len(self._tries)
        self._hits += [0.0] * missing
        self._tries += [0.0] * missing
        for i in range(len(self._tries)):
            met = i < tried and i <= reached
            keep = self._keep if met else max(self._keep, KEEP_UNTRIED)
            self._hits[i] = self._hits[i] * keep + (1.0 if met and i < reached else 0.0)
            self._tries[i] = self._tries[i] * keep + (1.0 if met else 0.0)

    def restart(self, reached: int) -> None:
        """Forgets everything but one draft that was accepted as far as it went."""
        self._hits = [1.0] * reached
        self._tries = [1.0] * reached

    def upto(self, count: int, above: Iterable[float] = ()) -> list[float]:
        """The rates of depths 1 to `count`; `above` are better priors than the depth above."""
        rates: list[float] = []
        rate, weight = PRIOR, PRIOR_TRIES
        prior, before = iter(above), self._before
        for i in range(count):
            rate = next(prior, before[i] if i < len(before) else rate)
            weight = RECORD_TRIES if i < len(before) else weight
            if i < len(self._tries):
                rate = (self._hits[i] + weight * rate) / (self._tries[i] + weight)
            rates.append(rate)
            weight = SHRINK
        return rates


CLIP = 0.001
FORGET = 1 / 256
CERTAINTY = (4.0, 16.0)
OFFSETS, SLOPES = (-8.0, 8.0), (0.05, 4.0)


class Odds:
    """P(accepted) = sigmoid(a + b logit(chance)), fitted by damped Newton steps that forget (an
    extended Kalman filter); starts from a = 0, b = 1: the chance is believed."""

    def __init__(self, a: float = 0.0, b: float = 1.0) -> None:
        self.a, self.b = a, b
        self._aa, self._bb = CERTAINTY
        self._ab = 0.0

    def __call__(self, chance: float) -> float:
        return 1 / (1 + math.exp(-self.a - self.b * _logit(chance)))

    def observe(self, chance: float, accepted: bool) -> float:
        """Learns what became of a node; returns what it had been given."""
        x = _logit(chance)
        p = 1 / (1 + math.exp(-self.a - self.b * x))
        weight = p * (1 - p) + 1e-3
        self._aa += FORGET * (CERTAINTY[0] - self._aa) + weight
        self._ab += -FORGET * self._ab + weight * x
        self._bb += FORGET * (CERTAINTY[1] - self._bb) + weight * x * x
        error = (1.0 if accepted else 0.0) - p
        determinant = self._aa * self._bb - self._ab * self._ab
        a = self.a + error * (self._bb - self._ab * x) / determinant
        b = self.b + error * (self._aa * x - self._ab) / determinant
        self.a = min(max(a, OFFSETS[0]), OFFSETS[1])
        self.b = min(max(b, SLOPES[0]), SLOPES[1])
        return p


class Acceptance:
    """One drafter's: its rates, and the odds of its nodes at each depth; with a record what this
    drafter came to in all runs, which it begins with and adds to."""

    def __init__(self, record: Acceptance | None = None, keep: float = KEEP_TRIED) -> None:
        self._record = record
        self.rates: Rates = Rates(record.rates if record is not None else None, keep)
        self._odds: list[Odds] = []
        if record is not None:
            self._odds = [Odds(one.a, one.b) for one in record._odds]

    @classmethod
    def of_all_runs(cls) -> Acceptance:
        """A record: it forgets slowly."""
        return cls(keep=KEEP_RECORDED)

    def odds(self, depth: int) -> Odds:
        """Those of a depth, from 1; a new depth begins as the one above it stands."""
        while len(self._odds) < depth:
            above = self._odds[-1] if self._odds else Odds()
            self._odds.append(Odds(above.a, above.b))
        return self._odds[depth - 1]

    def learn(self, depth: int, chance: float, accepted: bool) -> float:
        """What became of a node; returns what it had been given."""
        if self._record is not None:
            self._record.learn(depth, chance, accepted)
        return self.odds(depth).observe(chance, accepted)

    def seen(self, depth: int) -> tuple[float, float]:
        """The odds' a and b at a depth, from 1: those of the deepest above it where it is new."""
        known = self._odds[:depth]
        odds = known[-1] if known else Odds()
        return odds.a, odds.b


def _logit(chance: float) -> float:
    inside = min(max(chance, CLIP), 1 - CLIP) if chance == chance else 0.5
    return math.log(inside / (1 - inside))
