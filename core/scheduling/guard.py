"""PlainGuard: switches drafting off while plain rounds are faster."""

from __future__ import annotations

import math

from core.speculation_length.cost_model import Average

__all__ = ["PlainGuard"]

# Drafting is switched off only once the averages have this weight.
ENOUGH = 4
# The wait, in rounds without drafts, until drafting is tried again. A trial that does not pay
# doubles the wait, up to MAX_WAIT.
FIRST_WAIT, MAX_WAIT = 256, 4096
# In a trial the SSMs read the prompts of all live requests. The wait is chosen so that reading
# takes at most this share of the time (unless the wait is MAX_WAIT).
OPENING_SHARE = 0.02
# While drafting is on, one round in this many is plain, to measure plain rounds.
PROBE_EVERY = 64
# Rounds with drafts before the first probe.
FIRST_PROBE = 4
# The time of a round counts as at most this many times the mean.
OUTLIER = 3.0


class PlainGuard:
    """`allows_drafts`: whether drafting is on. Drafting is switched off once rounds with drafts
    commit fewer tokens than plain rounds would in the same time, by more than the standard error.
    `next_may_draft` is also false before a probe, a plain round while drafting is on.

    Tokens are compared, not times: the time of plain rounds changes with the texts' lengths.
    """

    def __init__(self) -> None:
        self.allows_drafts = True
        # Rounds while drafting was on; rounds since drafting was switched off.
        self._drafting_rounds = self._plain_rounds = 0
        # `_base_wait_rounds`: the wait after the present trial, unless its reading of prompts
        # requires a longer wait. `_wait_rounds`: the last wait.
        self._base_wait_rounds = self._wait_rounds = FIRST_WAIT
        # The time of the SSMs' reading of prompts in this trial, in plain rounds.
        self._opening_rounds = 0.0
        self._begin_trial()

    @property
    def next_may_draft(self) -> bool:
        return self.allows_drafts and (self._drafting_rounds - FIRST_PROBE) % PROBE_EVERY != 0

    @property
    def relative_cost(self) -> float:
        """The time of a token in rounds with drafts, divided by its time in plain rounds; 1 before
        the trial's first round with drafts."""
        return self._plain_tokens.get() / self._tokens.get() if self._tokens.weight else 1.0

    def observe_drafted(
        self, tokens: float, *, ms: float, total_ms: float, plain_ms: float, requests: int
    ) -> bool:
        """Adds a round with drafts that committed `tokens` tokens; returns whether it switched
        drafting off. `total_ms`: the round's measured time. `ms`: this time, with the SSMs' reading
        of a prompt spread over the tokens that the run commits. `plain_ms`: the time of a token in
        plain rounds, which commit one token for each of `requests` requests."""
        self._drafting_rounds += 1
        plain_tokens = ms / plain_ms
        if not (math.isfinite(plain_tokens) and plain_tokens > 0):
            return False
        plain_tokens = min(plain_tokens, OUTLIER * self._plain_tokens.get(tokens))
        self._plain_tokens.add(plain_tokens)
        self._tokens.add(tokens)
        self._lost_tokens.add(plain_tokens - tokens)
        self._opening_rounds += max(0.0, total_ms / plain_ms - plain_tokens) / requests
        if self._lost_tokens.weight < ENOUGH:
            return False
        mean = self._lost_tokens.get()
        standard_error = math.sqrt(self._lost_tokens.variance / self._lost_tokens.weight)
        if mean > standard_error:
            paid_after_rounds = math.ceil(self._opening_rounds / OPENING_SHARE)
            self._forbid(min(MAX_WAIT, max(self._base_wait_rounds, paid_after_rounds)))
            return True
        if mean < -standard_error:  # drafting pays: a later loss comes from a changed load
            self._base_wait_rounds, self._opening_rounds = FIRST_WAIT, 0.0
        return False

    def forbid_like(self, other: PlainGuard) -> None:
        """Switches drafting off for as long as `other`, the guard of fewer requests, last did."""
        self._forbid(other._wait_rounds)

    def _forbid(self, rounds: int) -> None:
        self.allows_drafts, self._plain_rounds, self._wait_rounds = False, 0, rounds

    def observe_plain(self) -> bool:
        """Adds a round without drafts; returns whether drafting is tried again from now on."""
        if self.allows_drafts:
            self._drafting_rounds += 1  # for example a probe
            return False
        self._plain_rounds += 1
        if self._plain_rounds < self._wait_rounds:
            return False
        self.allows_drafts = True
        self._base_wait_rounds = min(MAX_WAIT, 2 * self._base_wait_rounds)
        self._begin_trial()
        return True

    def _begin_trial(self) -> None:
        # Means over rounds with drafts: committed tokens, tokens of plain rounds in the same time,
        # and the difference.
        self._tokens, self._plain_tokens, self._lost_tokens = Average(), Average(), Average()
        self._opening_rounds = 0.0
