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
# Factor to which the relative time of a single round is clipped.
OUTLIER = 3.0


class PlainGuard:
    """`drafts`: whether the next round may have drafts. Off once a token takes longer in rounds
    with drafts than in plain ones, by more than the standard error. `allows_drafts`: whether
    drafting is on; true also in a probe of plain rounds."""

    def __init__(self) -> None:
        self.allows_drafts = True
        self._log = Average()
        self._drafted = self._plain = 0
        self._wait = FIRST_WAIT

    @property
    def drafts(self) -> bool:
        return self.allows_drafts and (self._drafted - FIRST_PROBE) % PROBE_EVERY != 0

    @property
    def relative(self) -> float:
        """The time of a token in rounds with drafts over that in plain rounds (geometric mean)."""
        return math.exp(self._log.get())

    def observe_drafted(self, relative: float) -> bool:
        """Adds a round with drafts; returns whether it switched drafting off."""
        self._drafted += 1
        if not (math.isfinite(relative) and relative > 0):
            return False
        bound = math.log(OUTLIER)
        self._log.add(max(-bound, min(bound, math.log(relative))))
        if self._log.weight < ENOUGH:
            return False
        # A logarithm: above 0, a token takes longer with drafts.
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
        self.allows_drafts, self._plain = False, 0

    def observe_plain(self) -> bool:
        """Adds a round without drafts; returns whether drafting is tried again from now on."""
        if self.allows_drafts:
            self._drafted += 1  # a probe
            return False
        self._plain += 1
        if self._plain < self._wait:
            return False
        self.allows_drafts, self._wait = True, min(MAX_WAIT, 2 * self._wait)
        self._log = Average()
        return True
