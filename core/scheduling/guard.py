"""PlainGuard: switches drafting off for all requests while plain rounds are faster."""

from __future__ import annotations

import math

from core.length.cost_model import Average

__all__ = ["PlainGuard"]

# Weight of the averages from which they count. Each addition decays the earlier ones, so that it is
# reached in the fifth round with drafts.
ENOUGH = 4
# Rounds without drafts until drafting is tried again: at first, and at most; doubled by each trial
# that does not pay.
FIRST_WAIT, MAX_WAIT = 256, 4096
# Part of the time that SSMs may take to read the prompts of all live requests for trials. One such
# reading takes as long as tens of plain rounds, and the next trial waits until that is paid for.
OPENING_SHARE = 0.02
# While drafting is on, every 64th round is plain, so that the measured time of plain rounds stays
# recent. It costs far less than 1 %.
PROBE_EVERY = 64
# Rounds with drafts before the first of these probes.
FIRST_PROBE = 4
# A round that takes longer than 3 times the mean counts as 3 times.
OUTLIER = 3.0


class PlainGuard:
    """`allows_drafts`: whether drafting is on. It is switched off once rounds with drafts commit
    fewer tokens than plain rounds would in their time, by more than the standard error.
    `next_may_draft`: whether the next round may have drafts: false also for a probe, a plain round
    while drafting is on.

    Sums are compared, not the time per token of single rounds: of one request one round may commit
    one token and the next nine, and a mean of ratios would charge that as a loss.
    """

    def __init__(self) -> None:
        self.allows_drafts = True
        # Plain rounds that would have fitted into the SSMs' reading of prompts, in this trial.
        self._opening_rounds = 0.0
        self._begin_trial()
        self._num_rounds = self._num_plain = 0
        # The wait after a cheap trial, and the present one.
        self._base_wait = self._wait = FIRST_WAIT

    @property
    def next_may_draft(self) -> bool:
        return self.allows_drafts and (self._num_rounds - FIRST_PROBE) % PROBE_EVERY != 0

    @property
    def relative_cost(self) -> float:
        """The time of a token in rounds with drafts over that in plain rounds."""
        return self._cost.get() / self._tokens.get() if self._tokens.weight else 1.0

    def observe_drafted(
        self, cost: float, tokens: float = 1.0, total: float = 0.0, requests: int = 1
    ) -> bool:
        """Adds a round with drafts that committed `tokens`; returns whether it switched drafting
        off. `cost`: its time, in tokens that plain rounds commit in it, without the SSMs' reading
        of prompts; `total`: with it. `requests`: the tokens of one plain round."""
        self._num_rounds += 1
        if not (math.isfinite(cost) and cost > 0):
            return False
        cost = min(cost, OUTLIER * self._cost.get(tokens))
        self._cost.add(cost)
        self._tokens.add(tokens)
        self._loss.add(cost - tokens)
        self._opening_rounds += max(0.0, total - cost) / requests
        if self._loss.weight < ENOUGH:
            return False
        mean = self._loss.get()
        standard_error = math.sqrt(self._loss.variance / max(1.0, self._loss.weight))
        if mean > standard_error:
            paid_after = math.ceil(self._opening_rounds / OPENING_SHARE)
            self._forbid(min(MAX_WAIT, max(self._base_wait, paid_after)))
            return True
        if mean < -standard_error:  # drafting pays: a later loss comes from another load
            self._base_wait, self._opening_rounds = FIRST_WAIT, 0.0
        return False

    def forbid_like(self, other: PlainGuard) -> None:
        """No drafts for as many rounds as after the last trial of `other`, with fewer requests: one
        of more is no cheaper."""
        self._forbid(other._wait)

    def _forbid(self, rounds: int) -> None:
        self.allows_drafts, self._num_plain, self._wait = False, 0, rounds

    def observe_plain(self) -> bool:
        """Adds a round without drafts; returns whether drafting is tried again from now on."""
        if self.allows_drafts:
            self._num_rounds += 1  # a probe
            return False
        self._num_plain += 1
        if self._num_plain < self._wait:
            return False
        self.allows_drafts, self._base_wait = True, min(MAX_WAIT, 2 * self._base_wait)
        self._begin_trial()
        return True

    def _begin_trial(self) -> None:
        self._cost, self._tokens, self._loss = Average(), Average(), Average()
        self._opening_rounds = 0.0
