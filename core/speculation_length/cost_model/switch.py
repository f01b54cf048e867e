"""Switch: keeps an optimization on or off by comparing the times of rounds with and without it.

Rounds are compared at equal numbers of drafted steps: with the optimization on, a length policy may
draft deeper.
"""

from __future__ import annotations

import math
import statistics

from core.speculation_length.cost_model.meters import TINY_MS, Average, LinearFit

__all__ = ["Switch"]

# Rounds of a trial: it may be lost after SHORT rounds, may be won after TRIAL rounds, and ends
# after LONG rounds.
SHORT, TRIAL, LONG = 3, 6, 24
# A trial wins if its time is below MAX_RATIO of the baseline, and below the baseline by
# STANDARD_ERRORS standard errors. After LONG rounds with the switch off, MAX_RATIO alone decides.
MAX_RATIO = 0.98
STANDARD_ERRORS = 2.0
# Rounds from one trial to the next: doubled from FIRST_WAIT to MAX_WAIT.
FIRST_WAIT, MAX_WAIT = 16, 128
# Factor around the baseline to which the time of a single round is clipped.
OUTLIER = 3.0


class Switch:
    """The switch is off at first. Now and then the other setting is tried, and kept if its rounds
    are shorter.

    The first trial begins after TRIAL rounds. A win sets the wait for the next trial to FIRST_WAIT
    rounds. A loss raises a wait of TRIAL rounds to FIRST_WAIT, and doubles a longer wait, up to
    MAX_WAIT. A trial of LONG rounds that does not win leaves the wait as it is.
    """

    def __init__(self) -> None:
        self.on = False
        self._default = False
        self._baseline = _Baseline()
        self._trial: list[tuple[float, float]] = []
        self._skip = False
        self._rounds, self._wait = 0, TRIAL

    def observe(self, ms: float, steps: float = 0.0) -> tuple[float, float] | None:
        """Adds a round of `steps` drafted steps under the current setting. If the round ended a
        trial, returns the typical milliseconds of a round with the switch on, and with the switch
        off; otherwise None."""
        if self._skip:  # the first round after a change belongs to neither setting
            self._skip = False
            return None
        # Zero or non-finite times are skipped: they have no finite logarithm.
        if not (math.isfinite(ms) and ms > TINY_MS):
            return None
        if self.on == self._default:  # no trial
            self._baseline.add(ms, steps)
            self._rounds += 1
            if self._rounds >= self._wait:
                self._set(not self._default)
            return None
        self._trial.append((ms, steps))
        return self._judge()

    def _judge(self) -> tuple[float, float] | None:
        # Log ratios: twice the time and half the time cancel out.
        mean = statistics.fmean(self._baseline.log_ratio(*one) for one in self._trial)
        count = len(self._trial)
        at_end_of_off = count == LONG and not self.on
        doubt = 0.0 if at_end_of_off else STANDARD_ERRORS * self._baseline.deviation(count)
        # Before TRIAL rounds a trial is lost only if it is significantly slower.
        is_faster = mean < min(math.log(MAX_RATIO), -doubt)
        is_slower = mean >= math.log(MAX_RATIO) if count >= TRIAL else mean > doubt
        if count < SHORT or not (is_faster and count >= TRIAL or is_slower or count == LONG):
            return None
        baseline = self._baseline.typical_ms([steps for _, steps in self._trial])
        trial_ms, baseline_ms = round(baseline * math.exp(mean), 3), round(baseline, 3)
        on_and_off_ms = (trial_ms, baseline_ms) if self.on else (baseline_ms, trial_ms)
        self._settle(is_faster)
        return on_and_off_ms

    def _settle(self, is_faster: bool) -> None:
        if is_faster:
            self._default, self._wait = self.on, FIRST_WAIT
            self._baseline = _Baseline()
            for ms, steps in self._trial:
                self._baseline.add(ms, steps)
        else:
            # Back to the default; its baseline is still valid.
            self._set(self._default)
            if len(self._trial) < LONG:  # an undecided trial does not lengthen the wait
                self._wait = FIRST_WAIT if self._wait == TRIAL else min(2 * self._wait, MAX_WAIT)
        self._trial, self._rounds = [], 0

    def _set(self, on: bool) -> None:
        self.on = on
        self._skip = True


class _Baseline:
    """Milliseconds of a round under the default setting, as a function of its drafted steps: a line
    through recent rounds, at least 1 / OUTLIER of their mean. Also the spread of the rounds around
    this line."""

    def __init__(self) -> None:
        self._line = LinearFit()
        # Mean logarithm of the ratio of measured to predicted time.
        self._residual = Average()

    def add(self, ms: float, steps: float) -> None:
        """Adds a round; times are clipped to a factor of OUTLIER around the line."""
        if self._line.mean.weight:
            # The clipped residual, computed before this round moves the line.
            residual = self._clipped_log_ratio(ms, steps)
            self._residual.add(residual)
            ms = self._line_ms(steps) * math.exp(residual)
        self._line.add(steps, ms)

    def log_ratio(self, ms: float, steps: float) -> float:
        """The logarithm of the ratio of a round's time to the baseline."""
        return self._clipped_log_ratio(ms, steps) - self._residual.get()

    def deviation(self, count: int) -> float:
        """The standard error of the mean log ratio of `count` rounds."""
        # The baseline's mean is an estimate too: both variances add.
        residual = self._residual
        return math.sqrt(residual.variance * (1 / count + 1 / max(1.0, residual.weight)))

    def typical_ms(self, steps: list[float]) -> float:
        """The baseline's milliseconds for rounds with these numbers of drafted steps (geometric
        mean)."""
        return statistics.geometric_mean(map(self._line_ms, steps)) * math.exp(self._residual.get())

    def _clipped_log_ratio(self, ms: float, steps: float) -> float:
        bound = math.log(OUTLIER)
        return max(-bound, min(bound, math.log(ms / self._line_ms(steps))))

    def _line_ms(self, steps: float) -> float:
        # A round without drafted steps takes time too.
        return max(self._line.at(steps), self._line.mean.get() / OUTLIER)
