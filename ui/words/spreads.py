"""Words for a speed-up and its range over repeats or prompts."""

from __future__ import annotations

from lab.figures import FEW, Estimate

__all__ = [
    "AS_FAST",
    "SINGLE",
    "apart_words",
    "is_noise",
    "is_slower",
    "is_unsure",
    "noise_words",
    "range_words",
    "spread_words",
    "speed_up_words",
    "where_words",
]

AS_FAST = 0.99
"""A speed-up of at least AS_FAST is not called slower: equal runs may differ by 1 %."""
NOISE = 1.02
"""A speed-up that exceeds the tokens per pass by this factor is noise: an LLM pass is no faster
with drafts than without."""
FAR_APART = 2.0
"""Repeats of one request count as disturbed if the highest speed-up is at least this many times the
lowest."""

SINGLE = "one sample"
"""For a speed, or a speed-up, that was measured once."""

DIGITS = 2
"""Decimals of a printed speed-up."""


def speed_up_words(ratio: Estimate, noun: str = "repeat", against: str = "") -> str:
    """`1.20x the speed of plain decoding (1.10 to 1.30 in 3 repeats)`. `noun`: the name of a group
    of the estimate; `against`: words for plain decoding, used for a single sample."""
    if ratio.groups < 2:
        return f"{ratio.value:.2f}x the speed of {against or 'plain decoding'}, {SINGLE}"
    # A range from the lowest to the highest value (`ends`) is no 95 % interval.
    where = "in" if ratio.ends else "in 95 % of resamples of"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f} {where} {ratio.groups} {noun}s"
    return f"{ratio.value:.2f}x the speed of plain decoding ({interval})"


def range_words(estimate: Estimate, places: int) -> str:
    """`1.1 to 1.3 in 3 repeats`, with `places` decimals, or SINGLE."""
    if estimate.groups < 2:
        return SINGLE
    ends = f"{estimate.low:.{places}f} to {estimate.high:.{places}f}"
    return f"{ends} in {estimate.groups} repeats"


def is_unsure(ratio: Estimate) -> bool:
    """Whether a range of speed-ups contains 1."""
    # Rounded as printed: next to "0.54 to 1.00" no point may be called slower.
    return ratio.groups > 1 and round(ratio.low, DIGITS) <= 1 <= round(ratio.high, DIGITS)


def is_noise(ratio: float, tokens_per_pass: float | None) -> bool:
    """Whether a speed-up is larger than `tokens_per_pass` can explain."""
    return tokens_per_pass is not None and ratio > NOISE * tokens_per_pass


def noise_words(ratio: Estimate, tokens_per_pass: float | None) -> str:
    """Which part of a range of speed-ups is noise by `is_noise`; empty if no part is."""
    if tokens_per_pass is None or not is_noise(max(ratio.value, ratio.high), tokens_per_pass):
        return ""
    if is_noise(ratio.value, tokens_per_pass):
        return f"noise, since {tokens_per_pass:.2f} tokens per pass gain no more"
    return f"above {tokens_per_pass:.2f}x, the tokens per pass, is noise"


def apart_words(ratio: Estimate, noun: str = "repeat") -> str:
    """Says that samples of one request differ too much to compare its speed with plain decoding;
    else empty. Always empty for prompts, whose speed-ups differ anyway."""
    if noun == "prompt" or not is_unsure(ratio) or ratio.high < FAR_APART * ratio.low:
        return ""
    return f"the {noun}s differ too much to tell"


def is_slower(ratio: Estimate) -> bool:
    """Whether a speed-up is below AS_FAST and its whole range is below 1; False for one sample."""
    return ratio.groups > 1 and ratio.value < AS_FAST and round(ratio.high, DIGITS) < 1


def spread_words(estimate: Estimate | None, noun: str) -> str:
    """`95 % of resamples of 8 prompts`, `lowest to highest of 3 repeats`, `one repeat: no
    interval`; empty without a measurement. `noun`: the name of a group of the estimate."""
    if estimate is None:
        return ""
    if estimate.groups < 2:
        return f"one {noun}: no interval"
    what = "lowest to highest" if estimate.ends else "95 % of resamples"
    return f"{what} of {estimate.groups} {noun}s"


def where_words(estimate: Estimate, noun: str) -> str:
    """`in this one prompt`, `in these 3 repeats`, or `here` for FEW groups or more."""
    if estimate.groups < 2:
        return f"in this one {noun}"
    return f"in these {estimate.groups} {noun}s" if estimate.groups < FEW else "here"
