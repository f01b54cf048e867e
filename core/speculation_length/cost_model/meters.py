"""Running statistics in which old values fade: a noisy cost, a mean, a line."""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["TINY_MS", "Average", "LinearFit", "Meter"]

# Number of timings in the median.
WINDOW = 5
# Weight of a new median in the moving average.
RATE = 0.3
# An Average covers about this many of the last values.
HORIZON = 32.0
TINY_MS = 1e-6
"""Replaces 0 in divisions and logarithms."""


class Meter:
    """A cost in milliseconds, from noisy timings: the least of the first WINDOW timings, later a
    moving average of the medians of the last WINDOW timings."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._recent: deque[float] = deque(maxlen=WINDOW)

    def add(self, value: float) -> None:
        """Adds a timing; ignores a timing that is negative or not finite."""
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
    """Mean and variance of about the last `horizon` values. `weight`: the number of values, in
    which old values count less; at most `horizon`."""

    def __init__(self, horizon: float = HORIZON) -> None:
        self._keep = 1 - 1 / horizon
        self._sum = self._square_sum = 0.0
        self.weight = 0.0

    def add(self, value: float) -> None:
        # Sums and weight decay alike, so the mean is unbiased from the first value on.
        self._sum = self._sum * self._keep + value
        self._square_sum = self._square_sum * self._keep + value * value
        self.weight = self.weight * self._keep + 1

    def get(self, default: float = 0.0) -> float:
        """The mean, `default` before the first value."""
        return self._sum / self.weight if self.weight else default

    @property
    def variance(self) -> float:
        """The population variance; 0 before the first value."""
        mean = self.get()
        return max(0.0, self._square_sum / self.weight - mean * mean) if self.weight else 0.0


class LinearFit:
    """A least-squares line of y against x >= 0, through about the last `horizon` points. It never
    falls and is never steeper than the line from the origin to the points' mean. `mean`: the
    Average of y."""

    def __init__(self, horizon: float = HORIZON) -> None:
        self._x, self.mean, self._product = (Average(horizon) for _ in range(3))

    def add(self, x: float, y: float) -> None:
        self._x.add(x)
        self.mean.add(y)
        self._product.add(x * y)

    def at(self, x: float) -> float:
        """The line's y at `x`; the mean of y while all points have the same x."""
        mean_x, mean_y = self._x.get(), self.mean.get()
        variance = self._x.variance
        if not variance > 1e-9:
            return mean_y
        # cov(x, y) / var(x)
        slope = (self._product.get() - mean_x * mean_y) / variance
        # Noise may tilt the line: y must not fall as x grows, nor be negative at x = 0.
        return mean_y + max(0.0, min(slope, mean_y / max(1e-9, mean_x))) * (x - mean_x)
