"""What an interval of repeats or prompts is called: what it tells depends on how many there are.

Pure. Resampled medians of fewer than six reach from the lowest to the highest: that is no 95 %.
"""

from __future__ import annotations

from lab.figures import FEW, Estimate

__all__ = ["spread_words", "where_words"]


def spread_words(estimate: Estimate | None, noun: str) -> str:
    """`95 % of resamples of 8 prompts`, `lowest to highest of 3 repeats`, `one repeat: no
    interval`; empty where nothing is measured. `noun`: what one group of the estimate is."""
    if estimate is None:
        return ""
    if estimate.groups < 2:
        return f"one {noun}: no interval"
    what = "lowest to highest" if estimate.ends else "95 % of resamples"
    return f"{what} of {estimate.groups} {noun}s"


def where_words(estimate: Estimate, noun: str) -> str:
    """Of what a result is said: of few repeats or prompts nothing follows for others."""
    if estimate.groups < 2:
        return f"in this one {noun}"
    return f"in these {estimate.groups} {noun}s" if estimate.groups < FEW else "here"
