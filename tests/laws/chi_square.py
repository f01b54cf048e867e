"""Pearson's chi-square test of counts against exact probabilities; small cells are pooled."""

import math
from collections.abc import Hashable, Mapping

import torch

MIN_EXPECTED = 5.0


def survival(statistic: float, freedom: int) -> float:
    """P(X >= statistic) for a chi-square variable."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def pooled_chi_square(
    counts: Mapping[Hashable, int], probabilities: Mapping[Hashable, float]
) -> tuple[float, int]:
    """The p-value and the number of cells."""
    total = sum(counts.values())
    large = {cell: p for cell, p in probabilities.items() if p * total >= MIN_EXPECTED}
    rest = 1.0 - math.fsum(large.values())
    pairs = [(counts.get(cell, 0), p * total) for cell, p in large.items()]
    remaining = total - sum(count for count, _ in pairs)
    if rest * total >= MIN_EXPECTED:
        pairs.append((remaining, rest * total))
    elif pairs:
        # The pooled outcomes are too few for a cell of their own.
        count, expected = pairs.pop()
        pairs.append((count + remaining, expected + rest * total))
    statistic = math.fsum((count - expected) ** 2 / expected for count, expected in pairs)
    return survival(statistic, len(pairs) - 1), len(pairs)
