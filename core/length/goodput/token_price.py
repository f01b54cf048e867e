"""Price: what a millisecond is worth, in committed tokens (the lambda of ALGORITHMS 4)."""

from __future__ import annotations

from core.length.cost_model import Average

__all__ = ["Price"]

HORIZON = 32.0
OUTLIER = 4.0


class Price:
    """A moving average of tokens over one of milliseconds.

    Time is counted in plain rounds, so that a machine that slows down moves the price at once; and
    since plain decoding can always be had, the price is never below it.
    """

    def __init__(self) -> None:
        self._tokens = Average(HORIZON)
        self._rounds = Average(HORIZON)

    def observe(self, tokens: int, ms: float, expected_ms: float, plain_ms: float) -> None:
        """A round; beyond four times what was expected, its time is an outlier's."""
        if not ms > 0:
            return
        if expected_ms > 0:
            ms = min(ms, OUTLIER * expected_ms)
        self._tokens.add(tokens)
        self._rounds.add(ms / plain_ms)

    @property
    def known(self) -> bool:
        """Whether a round was observed."""
        return self._rounds.weight > 0

    def get(self, plain_ms: float) -> float:
        """Tokens a millisecond."""
        rounds = self._rounds.get()
        return max(1.0, self._tokens.get() / rounds if rounds else 0.0) / plain_ms
