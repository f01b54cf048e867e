"""Running figures that forget: a noisy cost, an average. Know nothing of what they measure."""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["TINY_MS", "Average", "Meter"]

# Timings in the median; weight of a new median.
WINDOW = 5
RATE = 0.3
# Values that an average remembers.
HORIZON = 32.0
TINY_MS = 1e-6
"""Stands for no time where it is divided by."""


class Meter:
    """A cost in milliseconds from noisy timings: the least of the first five, then a moving average
    of the medians of the last five, so that no single outlier moves it and a lasting change is
    followed within some ten timings."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._recent: deque[float] = deque(maxlen=WINDOW)

    def add(self, value: float) -> None:
        """One timing; what is not a number, or negative, is no timing."""
        if not (math.isfinite(value) and value >= 0):
            return
        is_new = len(self._recent) < WINDOW
        self._recent.append(value)
        if is_new:  # a cold or busy start can only lengthen timings
            self.value = min(self._recent)
        else:
            self.value = self.get() + RATE * (statistics.median(self._recent) - self.get())

    def get(self, default: float = 0.0) -> float:
        """The cost, `default` before the first timing."""
        return default if self.value is None else self.value


class Average:
    """A mean over about the last `horizon` values; `weight` counts them, at most `horizon`."""

    def __init__(self, horizon: float = HORIZON) -> None:
        self._keep = 1 - 1 / horizon
        self._sum = 0.0
        self.weight = 0.0

    def add(self, value: float) -> None:
        # Sum and weight decay alike, so the mean is unbiased from the first value on.
        self._sum = self._sum * self._keep + value
        self.weight = self.weight * self._keep + 1

    def get(self, default: float = 0.0) -> float:
        return self._sum / self.weight if self.weight else default
