"""The name of an interval over repeats or prompts, which depends on their number.

Pure. For fewer than six groups, resampled medians reach from the lowest to the highest value, which
is no 95 % interval.
"""

from __future__ import annotations

from lab.figures import FEW, Estimate

__all__ = ["spread_words", "where_words"]


def spread_words(estimate: Estimate | None, noun: str) -> str:
    """`95 % of resamples of 8 prompts`, `lowest to highest of 3 repeats`, `one repeat: no
    interval`; empty without a measurement. `noun`: what one group of the estimate is."""
    if estimate is None:
        return ""
    if estimate.groups < 2:
        return f"one {noun}: no interval"
    what = "lowest to highest" if estimate.ends else "95 % of resamples"
    return f"{what} of {estimate.groups} {noun}s"


def where_words(estimate: Estimate, noun: str) -> str:
    """What a result is valid for: few repeats or prompts say nothing about others."""
    if estimate.groups < 2:
        return f"in this one {noun}"
    return f"in these {estimate.groups} {noun}s" if estimate.groups < FEW else "here"
