"""Switch: what pays or does not is left on or off by what rounds take with it and without it.

Used for pipelining, which changes a round's time and not its tokens: fewer milliseconds are more
goodput there, told apart with far less noise than tokens a second.
"""

from __future__ import annotations

import statistics

from core.costs.meters import Meter

__all__ = ["Switch"]

TRIAL = 6
# Winning by less may be noise; then what was kept is kept.
CLEARLY = 0.98
FIRST, LAST = 16, 128


class Switch:
    """Off at first; the other way is tried for six rounds, and kept if a round takes clearly less.
    Else it is tried again after 16 rounds, 32, 64, 128; once it wins, the intervals begin anew."""

    def __init__(self) -> None:
        self.on = False
        self._kept = False
        self._ms = Meter()
        self._trial: list[float] = []
        self._skip = False
        self._rounds, self._wait = 0, TRIAL

    def observe(self, ms: float) -> tuple[float, float] | None:
        """A round took so long as the switch stood. When that ended a trial: the milliseconds of a
        round with it on, and off."""
        if self._skip:  # the first round behind a change is neither one nor the other
            self._skip = False
            return None
        if self.on == self._kept:
            self._ms.add(ms)
            self._rounds += 1
            if self._rounds >= self._wait:
                self._turn(not self._kept)
            return None
        self._trial.append(ms)
        return self._judge() if len(self._trial) == TRIAL else None

    def _judge(self) -> tuple[float, float]:
        tried, before = statistics.median(self._trial), self._ms.get()
        found = (tried, before) if self.on else (before, tried)
        self._trial, self._rounds = [], 0
        if tried < CLEARLY * before:
            self._kept, self._wait = self.on, FIRST
            self._ms = Meter()
            self._ms.add(tried)
        else:
            self._wait = FIRST if self._wait == TRIAL else min(2 * self._wait, LAST)
            self._turn(self._kept)
        return found

    def _turn(self, on: bool) -> None:
        self.on = on
        self._skip = True
