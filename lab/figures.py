"""Pure statistics, among them bootstrap intervals over groups of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "FEW",
    "Estimate",
    "estimate",
    "least_squares",
    "median",
    "middle",
    "pooled_length",
    "pooled_ratio",
]

Rows = npt.NDArray[np.float64]
Statistic = Callable[[Rows], Rows]
"""Maps values (..., n, d) to figures (...); rows of NaN are skipped."""
RESAMPLES = 2000
LEVEL = 95.0
FEW = 6
"""With fewer groups than this, more than 2.5 % of the resampled medians are the lowest group's."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval over `groups` groups. `ends`: whether the interval reaches from
    the lowest to the highest group's figure."""

    value: float
    low: float
    high: float
    groups: int
    ends: bool = False

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def estimate(
    groups: Sequence[Sequence[Any]],
    statistic: Statistic,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate | None:
    """`statistic` of all values, with the percentile interval of resampled groups; None without
    values.

    Groups are drawn with replacement, each with all its values, since values of one group are not
    independent. A value is a number or a row of numbers.
    """
    arrays = [_rows(group) for group in groups if len(group)]
    if not arrays:
        return None
    value = statistic(np.concatenate(arrays))
    picks = np.random.default_rng(seed).integers(len(arrays), size=(resamples, len(arrays)))
    # (resamples, groups x size, d); shorter groups are padded with rows of NaN.
    size = max(map(len, arrays))
    resampled_values = statistic(
        _padded_with_nan(arrays, size)[picks].reshape(resamples, -1, arrays[0].shape[1])
    )
    tail = (100.0 - LEVEL) / 2
    low, high = np.percentile(resampled_values, [tail, 100.0 - tail])
    each = [float(statistic(one)) for one in arrays] if len(arrays) < FEW else []
    ends = bool(each) and math.isclose(low, min(each)) and math.isclose(high, max(each))
    return Estimate(float(value), float(low), float(high), len(arrays), ends)


def _rows(group: Sequence[Any]) -> Rows:
    values = np.asarray(group, dtype=np.float64)
    # Shape (n, d): a number becomes a row of one number.
    return values if values.ndim == 2 else values[:, None]


def _padded_with_nan(arrays: Sequence[Rows], size: int) -> Rows:
    # Shape (groups, size, d).
    padded = np.full((len(arrays), size, arrays[0].shape[1]), np.nan)
    for group, array in zip(padded, arrays, strict=True):
        group[: len(array)] = array
    return padded


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle values."""
    return float(np.median(values))


def middle(rows: Rows) -> Rows:
    """The median of rows, each of one number."""
    in_order = np.sort(rows[..., 0], axis=-1)  # NaN is sorted last
    count = np.count_nonzero(~np.isnan(in_order), axis=-1)[..., None]
    # Indices of the two middle values; for an odd count the same index twice.
    indices = np.concatenate([(count - 1) // 2, count // 2], axis=-1)
    middles: Rows = np.take_along_axis(in_order, indices, axis=-1).mean(axis=-1)
    return middles


def pooled_length(rows: Rows) -> Rows:
    """Tokens per LLM pass of rows (accepted tokens, rounds): 1 + sum accepted / sum rounds."""
    sums = np.nansum(rows, axis=-2)
    lengths: Rows = 1 + sums[..., 0] / sums[..., 1]
    return lengths


def pooled_ratio(rows: Rows) -> Rows:
    """`pooled_length` of columns 0 and 1 divided by `pooled_length` of columns 2 and 3."""
    return pooled_length(rows[..., :2]) / pooled_length(rows[..., 2:])


def least_squares(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(a, b) of the line a + b x through points (x, y); b is 0 if all x are equal."""
    xs, ys = np.asarray(points, dtype=np.float64).T
    spread = float(((xs - xs.mean()) ** 2).sum())
    slope = float(((xs - xs.mean()) * (ys - ys.mean())).sum()) / spread if spread else 0.0
    return float(ys.mean()) - slope * float(xs.mean()), slope
