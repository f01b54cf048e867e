"""Cover: what of a run's drafting other work hides, so that it adds nothing to a round."""

from __future__ import annotations

import math

from core.length.cost_model import Average

__all__ = ["Cover"]

HORIZON = 16.0
RATE = 0.3
# So much of a round's drafting hidden is all of it.
ALL = 0.95
# Rounds for which the end of the room, once it was seen, is not tried again.
PATIENCE = 32


class Cover:
    """Passes over other requests (`across`) hide up to so many milliseconds a round; guesses that
    come true (`ahead`) spare a share of all drafting. Nothing before any of that was seen."""

    def __init__(self) -> None:
        self._room = 0.0
        self._since_end = PATIENCE
        self._spared = Average(HORIZON)

    def observe(
        self, drafted_ms: float, hidden_ms: float, spared_ms: float, step_ms: float
    ) -> None:
        """A round: its drafts took so long, of which so much was hidden behind other requests'
        passes; what was drafted ahead spared it so much more. Where all was hidden, there may be
        room for a step of `step_ms` too."""
        whole = drafted_ms + spared_ms
        if not (math.isfinite(whole + hidden_ms) and whole > 0):
            return
        self._spared.add(spared_ms / whole)
        self._since_end += 1
        if not 0 < ALL * drafted_ms <= hidden_ms:
            self._room += RATE * (hidden_ms - self._room)
            self._since_end = 0
        elif self._since_end > PATIENCE:
            self._room = max(self._room, hidden_ms + step_ms)

    def charged(self, ms: float, before: float = 0.0) -> float:
        """What drafting of `ms`, behind other drafting of `before`, adds to a round."""
        spared = self._spared.get()
        if not self._room and not spared:
            return ms
        in_sight = max(0.0, before + ms - self._room) - max(0.0, before - self._room)
        return in_sight * (1 - spared)
