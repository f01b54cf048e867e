"""PlainGuard: switches drafting off for all requests while plain rounds are faster."""

from __future__ import annotations

import math

from core.length.cost_model import Average

__all__ = ["PlainGuard"]

# Weight of the average before it is judged: it forgets, so this is reached in the fifth round.
ENOUGH = 4
# Rounds without drafts before the next trial: doubled by each trial that is lost.
FIRST_WAIT, MAX_WAIT = 256, 4096
# One in so many rounds with drafts is made plain, at a cost far below 1 %, so that the measured
# time of plain rounds stays recent.
PROBE_EVERY = 64
# Rounds with drafts before the first such probe.
FIRST_PROBE = 4
# A single round's time counts as at most so many times the mean.
OUTLIER = 3.0


class PlainGuard:
    """`drafts`: whether the next round may have drafts. Off once rounds with drafts commit fewer
    tokens than plain rounds would in their time, by more than the standard error. `allows_drafts`:
    whether drafting is on; true also in a probe of plain rounds.

    Sums are compared, not the time per token of single rounds: of one request one round may commit
    one token and the next nine, and a mean of ratios would charge that as a loss.
    """

    def __init__(self) -> None:
        self.allows_drafts = True
        self._begin_trial()
        self._num_drafts = self._plain = 0
        self._wait = FIRST_WAIT

    @property
    def drafts(self) -> bool:
        return self.allows_drafts and (self._num_drafts - FIRST_PROBE) % PROBE_EVERY != 0

    @property
    def relative(self) -> float:
        """The time of a token in rounds with drafts over that in plain rounds."""
        return self._cost.get() / self._tokens.get() if self._tokens.weight else 1.0

    def observe_drafted(self, cost: float, tokens: float = 1.0) -> bool:
        """Adds a round with drafts that committed `tokens`; returns whether it switched drafting
        off. `cost`: its time, in tokens that plain rounds commit in it."""
        self._num_drafts += 1
        if not (math.isfinite(cost) and cost > 0):
            return False
        cost = min(cost, OUTLIER * self._cost.get(tokens))
        self._cost.add(cost)
        self._tokens.add(tokens)
        self._loss.add(cost - tokens)
        if self._loss.weight < ENOUGH:
            return False
        mean = self._loss.get()
        standard_error = math.sqrt(self._loss.variance / max(1.0, self._loss.weight))
        if mean > standard_error:
            self.forbid()
            return True
        if mean < -standard_error:
            self._wait = FIRST_WAIT  # it pays: a later loss is another load's
        return False

    def forbid(self) -> None:
        """No drafts until the next trial."""
        self.allows_drafts, self._plain = False, 0

    def observe_plain(self) -> bool:
        """Adds a round without drafts; returns whether drafting is tried again from now on."""
        if self.allows_drafts:
            self._num_drafts += 1  # a probe
            return False
        self._plain += 1
        if self._plain < self._wait:
            return False
        self.allows_drafts, self._wait = True, min(MAX_WAIT, 2 * self._wait)
        self._begin_trial()
        return True

    def _begin_trial(self) -> None:
        self._cost, self._tokens, self._loss = Average(), Average(), Average()
