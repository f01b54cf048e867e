"""Gaps: a round's time between its stages, which is as real as theirs.

Asking drafters, telling readers, accounts: more where something is drafted than where nothing is.
Counted for a request that is alone: of several nobody can say whose it was.
"""

from __future__ import annotations

import time

from core.engine.round_state import RoundState
from core.metrics import union_ms

__all__ = ["IdleTime"]


class IdleTime:
    """What follows a round's commit is known when the round is over, and counts in the next of the
    same run; what happens between two rounds, as when another request is let in, counts in none."""

    def __init__(self) -> None:
        self._run = ""
        self._behind = 0.0

    def fill(self, turn: RoundState | None, began: float) -> None:
        """Fills in `between_ms` of a lone turn, if it is one, whose round began then (seconds, as
        all times here) and whose stages but for the commit are over."""
        if turn is None:
            return
        sequence, live = turn.live.sequence, turn.live
        stages = [one for one in (*live.timed, *turn.timed) if one.start >= began]
        gap = time.perf_counter() - began - union_ms((one.start, one.end) for one in stages)
        behind = self._behind if sequence.run_id == self._run else 0.0
        turn.between_ms = (max(0.0, gap) + behind) * 1000

    def end(self, turn: RoundState | None) -> None:
        """The round is over, its readers are told; None: it was no lone turn's."""
        self._run = "" if turn is None else turn.live.sequence.run_id
        if turn is not None:
            self._behind = max(0.0, time.perf_counter() - max(one.end for one in turn.timed))
