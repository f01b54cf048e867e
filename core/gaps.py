"""Gaps: a round's time between its stages, which is as real as theirs.

Asking drafters, telling readers, accounts: more where something is drafted than where nothing is.
What comes behind a round's commit is known when the next begins, and counts there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from collections.abc import Sequence as Many

from core.sequence import Timed
from core.turn import Turn

__all__ = ["Gaps"]


class Gaps:
    """Shared equally by the requests of a round; between rounds of other requests there is none."""

    def __init__(self) -> None:
        self._runs: frozenset[str] = frozenset()
        self._committed = 0.0

    def fill(self, turns: Many[Turn], began: float) -> None:
        """Fills in `between_ms` of the turns of a round that began then, whose stages but for the
        commit are over."""
        runs = frozenset(turn.live.sequence.run_id for turn in turns)
        start = self._committed if runs == self._runs else began
        self._runs = runs
        stages = (one for turn in turns for one in turn.timed if one.start >= began)
        gap = time.perf_counter() - start - _covered(stages)
        for turn in turns:
            turn.between_ms = max(0.0, gap) * 1000 / len(turns)

    def committed(self, turns: Many[Turn]) -> None:
        """All turns are: what follows counts in the next round."""
        self._committed = max(one.end for turn in turns for one in turn.timed)


def _covered(stages: Iterable[Timed]) -> float:
    """Seconds in which at least one of them was at work."""
    covered, until = 0.0, float("-inf")
    for one in sorted(stages, key=lambda stage: stage.start):
        covered += max(0.0, one.end - max(one.start, until))
        until = max(until, one.end)
    return covered
