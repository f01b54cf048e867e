"""PlainGuard: whether any request drafts, by what drafting was measured to cost and bring.

Pure numbers: the time of a token in rounds with drafts over that of a plain round's.
"""

from __future__ import annotations

import math

from core.length.cost_model import Average

__all__ = ["PlainGuard"]

# Weight of the rounds with drafts that are judged: the average forgets, so it is the fifth round's.
ENOUGH = 4
# Rounds without drafts before the next trial: doubled by each trial that is lost.
FIRST_WAIT, MAX_WAIT = 256, 4096
# Of every so many rounds with drafts one is made plain, which costs far less than 1 %: so the time
# of plain rounds stays measured.
PROBE_EVERY = 64
FIRST_PROBE = 4
# A single round counts for at most this factor.
OUTLIER = 3.0


class PlainGuard:
    """`drafts`: whether the next round may have drafts. Off once they are measured not to pay."""

    def __init__(self) -> None:
        self._allowed = True
        self._log = Average()
        self._drafted = self._plain = 0
        self._wait = FIRST_WAIT

    @property
    def allows_drafts(self) -> bool:
        """Whether drafts are not measured to lose; true also in a probe of plain rounds."""
        return self._allowed

    @property
    def drafts(self) -> bool:
        return self._allowed and (self._drafted - FIRST_PROBE) % PROBE_EVERY != 0

    @property
    def relative(self) -> float:
        """The time of a token in rounds with drafts, in plain ones' (geometric mean)."""
        return math.exp(self._log.get())

    def observe_drafted(self, relative: float) -> bool:
        """A round with drafts; whether drafting has been switched off by it."""
        self._drafted += 1
        if not (math.isfinite(relative) and relative > 0):
            return False
        bound = math.log(OUTLIER)
        self._log.add(max(-bound, min(bound, math.log(relative))))
        if self._log.weight < ENOUGH:
            return False
        mean = self._log.get()
        standard_error = math.sqrt(self._log.variance / max(1.0, self._log.weight))
        if mean > standard_error:
            self.forbid()
            return True
        if mean < -standard_error:
            self._wait = FIRST_WAIT  # it pays: a later loss is another load's
        return False

    def forbid(self) -> None:
        """No drafts until the next trial."""
        self._allowed, self._plain = False, 0

    def observe_plain(self) -> bool:
        """A round without drafts; whether drafting is tried again from now on."""
        if self._allowed:
            self._drafted += 1  # a probe
            return False
        self._plain += 1
        if self._plain < self._wait:
            return False
        self._allowed, self._wait = True, min(MAX_WAIT, 2 * self._wait)
        self._log = Average()
        return True
