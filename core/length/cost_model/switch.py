"""Switch: what pays or does not is left on or off by what rounds take with it and without it.

Used for pipelining. It is judged by milliseconds, told apart with far less noise than tokens a
second; but a length policy may draft further where drafting is hidden, so a round counts against
what one of as many drafted steps takes the other way. Knows nothing of requests or models.
"""

from __future__ import annotations

import math
import statistics

from core.length.cost_model.meters import Average

__all__ = ["Switch"]

# A trial of so many rounds, ended early where it is plainly worse, made longer where it looks
# better and may yet be noise.
SHORT, TRIAL, LONG = 3, 6, 24
# Winning by less is not worth a change; nor is what lies within so many standard errors. In doubt
# to the end of a trial it is off, which loses nothing.
CLEARLY = 0.98
SURELY = 2.0
FIRST, LAST = 16, 128
HORIZON = 32.0
OUTLIER = 3.0
TINY_MS = 1e-6


class Switch:
    """Off at first; the other way is tried for six rounds, or up to 24 where it looks better, and
    kept if a round surely takes clearly less, off also where 24 leave it likely. Else it is tried
    again after 16 rounds, 32, 64, 128, as before where 24 did not tell; once it wins, the intervals
    begin anew."""

    def __init__(self) -> None:
        self.on = False
        self._kept = False
        self._usual = _Usual()
        self._trial: list[tuple[float, float]] = []
        self._skip = False
        self._rounds, self._wait = 0, TRIAL

    def observe(self, ms: float, steps: float = 0.0) -> tuple[float, float] | None:
        """A round of so many drafted steps took so long as the switch stood. When that ended a
        trial: the milliseconds of a round as those tried with it on, and off."""
        if self._skip:  # the first round behind a change is neither one nor the other
            self._skip = False
            return None
        if not (math.isfinite(ms) and ms > TINY_MS):
            return None
        if self.on == self._kept:
            self._usual.add(ms, steps)
            self._rounds += 1
            if self._rounds >= self._wait:
                self._turn(not self._kept)
            return None
        self._trial.append((ms, steps))
        return self._judge()

    def _judge(self) -> tuple[float, float] | None:
        tried = statistics.fmean(self._usual.log_ratio(*one) for one in self._trial)
        count = len(self._trial)
        last = count == LONG and not self.on
        doubt = 0.0 if last else SURELY * self._usual.deviation(count)
        won = tried < min(math.log(CLEARLY), -doubt)
        hopeless = tried >= math.log(CLEARLY) if count >= TRIAL else tried > doubt
        if count < SHORT or not (won and count >= TRIAL or hopeless or count == LONG):
            return None
        usual = self._usual.typical([steps for _, steps in self._trial])
        now, before = round(usual * math.exp(tried), 3), round(usual, 3)
        found = (now, before) if self.on else (before, now)
        self._settle(won)
        return found

    def _settle(self, won: bool) -> None:
        if won:
            self._kept, self._wait = self.on, FIRST
            self._usual = _Usual()
            for ms, steps in self._trial:
                self._usual.add(ms, steps)
        else:
            self._turn(self._kept)
            if len(self._trial) < LONG:  # else it is not known to be in vain
                self._wait = FIRST if self._wait == TRIAL else min(2 * self._wait, LAST)
        self._trial, self._rounds = [], 0

    def _turn(self, on: bool) -> None:
        self.on = on
        self._skip = True


class _Usual:
    """What a round of so many steps takes the way that is kept: a line through the last rounds,
    rising, nowhere under a third of their mean; and how far single rounds lie from it."""

    def __init__(self) -> None:
        self._ms, self._steps, self._both, self._square, self._off, self._off2 = (
            Average(HORIZON) for _ in range(6)
        )

    def add(self, ms: float, steps: float) -> None:
        """A round; beyond three times what was expected, its time is an outlier's."""
        if self._ms.weight:
            off = self._log(ms, steps)
            self._off.add(off)
            self._off2.add(off * off)
            ms = self._line(steps) * math.exp(off)
        self._ms.add(ms)
        self._steps.add(steps)
        self._both.add(ms * steps)
        self._square.add(steps * steps)

    def log_ratio(self, ms: float, steps: float) -> float:
        """The logarithm of a round's time over the usual."""
        return self._log(ms, steps) - self._off.get()

    def deviation(self, count: int) -> float:
        """The standard error of the mean log ratio of so many rounds."""
        variance = max(0.0, self._off2.get() - self._off.get() ** 2)
        return math.sqrt(variance * (1 / count + 1 / max(1.0, self._off.weight)))

    def typical(self, steps: list[float]) -> float:
        """The milliseconds usual for such rounds."""
        return statistics.geometric_mean(map(self._line, steps)) * math.exp(self._off.get())

    def _log(self, ms: float, steps: float) -> float:
        bound = math.log(OUTLIER)
        return max(-bound, min(bound, math.log(ms / self._line(steps))))

    def _line(self, steps: float) -> float:
        ms, mean = self._ms.get(), self._steps.get()
        spread = self._square.get() - mean * mean
        if not spread > 1e-9:
            return ms
        slope = (self._both.get() - ms * mean) / spread
        line = ms + max(0.0, min(slope, ms / mean)) * (steps - mean)
        return max(line, ms / OUTLIER)  # a round of no steps takes something too
