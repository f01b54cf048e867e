"""Switch: keeps an optimization on or off by comparing the times of rounds with and without it.

Used for pipelining. It compares milliseconds, which are far less noisy than tokens a second; but a
length policy may draft further where drafting is hidden, so a round is compared with the time that
as many drafted steps take the other way. Knows nothing of requests or models.
"""

from __future__ import annotations

import math
import statistics

from core.length.cost_model.meters import TINY_MS, Average

__all__ = ["Switch"]

# Rounds of a trial; ended at SHORT if clearly worse, extended to LONG if it looks better but may be
# noise.
SHORT, TRIAL, LONG = 3, 6, 24
# A trial wins if its time is under CLEARLY of the baseline and by SURELY standard errors. Still in
# doubt after LONG rounds: off, which loses nothing.
CLEARLY = 0.98
SURELY = 2.0
# Rounds from one trial to the next: doubled from FIRST_WAIT to MAX_WAIT.
FIRST_WAIT, MAX_WAIT = 16, 128
# A single round may count for at most this factor above or below the line.
OUTLIER = 3.0


class Switch:
    """Off at first. The other setting is tried for 6 rounds, up to 24 if it looks better, and kept
    if its rounds are significantly shorter; a trial of off wins after 24 rounds also if it is only
    likely. After a lost trial the next one follows in 16, 32, 64, 128 rounds (unchanged if 24
    rounds were undecided); after a win the intervals start again."""

    def __init__(self) -> None:
        self.on = False
        self._default = False
        self._baseline = _Baseline()
        self._trial: list[tuple[float, float]] = []
        self._skip = False
        self._rounds, self._wait = 0, TRIAL

    def observe(self, ms: float, steps: float = 0.0) -> tuple[float, float] | None:
        """Adds a round of `steps` drafted steps under the current setting. If it ended a trial:
        the milliseconds of such a round with the switch on, and off."""
        if self._skip:  # the first round after a change belongs to neither setting
            self._skip = False
            return None
        # Its logarithm is taken.
        if not (math.isfinite(ms) and ms > TINY_MS):
            return None
        # No trial is running.
        if self.on == self._default:
            self._baseline.add(ms, steps)
            self._rounds += 1
            if self._rounds >= self._wait:
                self._turn(not self._default)
            return None
        self._trial.append((ms, steps))
        return self._judge()

    def _judge(self) -> tuple[float, float] | None:
        # Log ratios: a round of twice the time and one of half cancel out.
        trial = statistics.fmean(self._baseline.log_ratio(*one) for one in self._trial)
        count = len(self._trial)
        last = count == LONG and not self.on
        # In the last round of a trial of off, being likely better is enough, see the class.
        doubt = 0.0 if last else SURELY * self._baseline.deviation(count)
        won = trial < min(math.log(CLEARLY), -doubt)
        lost = trial >= math.log(CLEARLY) if count >= TRIAL else trial > doubt
        if count < SHORT or not (won and count >= TRIAL or lost or count == LONG):
            return None
        baseline = self._baseline.typical([steps for _, steps in self._trial])
        now, before = round(baseline * math.exp(trial), 3), round(baseline, 3)
        on_and_off_ms = (now, before) if self.on else (before, now)
        self._settle(won)
        return on_and_off_ms

    def _settle(self, won: bool) -> None:
        if won:
            # The trial's setting is the kept one now, and its rounds are the new baseline.
            self._default, self._wait = self.on, FIRST_WAIT
            self._baseline = _Baseline()
            for ms, steps in self._trial:
                self._baseline.add(ms, steps)
        else:
            # Back to the kept setting; the baseline is still valid.
            self._turn(self._default)
            if len(self._trial) < LONG:  # an undecided trial does not lengthen the interval
                self._wait = FIRST_WAIT if self._wait == TRIAL else min(2 * self._wait, MAX_WAIT)
        self._trial, self._rounds = [], 0

    def _turn(self, on: bool) -> None:
        self.on = on
        self._skip = True


class _Baseline:
    """Time of a round by its drafted steps under the kept setting: a least-squares line through
    recent rounds, non-decreasing, at least a third of their mean; and the spread around it."""

    def __init__(self) -> None:
        # Means of y, x, x y, x^2 (ms against steps), of the residual and its square.
        self._ms, self._steps, self._product, self._square, self._off, self._off2 = (
            Average() for _ in range(6)
        )

    def add(self, ms: float, steps: float) -> None:
        """Adds a round; times are clipped to a factor of OUTLIER around the line."""
        if self._ms.weight:
            # The clipped residual, measured before this round moves the line.
            off = self._log(ms, steps)
            self._off.add(off)
            self._off2.add(off * off)
            ms = self._line(steps) * math.exp(off)
        self._ms.add(ms)
        self._steps.add(steps)
        self._product.add(ms * steps)
        self._square.add(steps * steps)

    def log_ratio(self, ms: float, steps: float) -> float:
        """The logarithm of a round's time over the baseline."""
        return self._log(ms, steps) - self._off.get()

    def deviation(self, count: int) -> float:
        """The standard error of the mean log ratio of so many rounds."""
        variance = max(0.0, self._off2.get() - self._off.get() ** 2)
        # The baseline's mean is an estimate too: both variances add.
        return math.sqrt(variance * (1 / count + 1 / max(1.0, self._off.weight)))

    def typical(self, steps: list[float]) -> float:
        """The baseline's milliseconds for rounds of these steps (geometric mean)."""
        return statistics.geometric_mean(map(self._line, steps)) * math.exp(self._off.get())

    def _log(self, ms: float, steps: float) -> float:
        bound = math.log(OUTLIER)
        return max(-bound, min(bound, math.log(ms / self._line(steps))))

    def _line(self, steps: float) -> float:
        ms, mean = self._ms.get(), self._steps.get()
        spread = self._square.get() - mean * mean
        if not spread > 1e-9:
            return ms
        # Least squares, cov(x, y) / var(x); between 0 and the slope of a line through the origin.
        slope = (self._product.get() - ms * mean) / spread
        line = ms + max(0.0, min(slope, ms / mean)) * (steps - mean)
        return max(line, ms / OUTLIER)  # a round of no steps takes time too
