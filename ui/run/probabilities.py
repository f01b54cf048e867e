"""Explains the probabilities of a token: its bar, its score, and the p and q of its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.config.mechanisms import draft_kind, verify_rule

__all__ = ["probability_words", "rounded_probability", "warper_words"]

DIGITS = 4


def rounded_probability(probability: float) -> float:
    """The probability, rounded to four decimals; only exactly 0 and 1 become 0 and 1."""
    least = 10.0**-DIGITS
    rounded = round(probability, DIGITS)
    return min(max(rounded, least), 1 - least) if 0 < probability < 1 else rounded


def probability_words(config: Mapping[str, Any]) -> str:
    """What bars, scores, p and q mean in a run with this `config`; empty if `config` has no
    sampling or no speculation."""
    sampling, speculation = config.get("sampling", {}), config.get("speculation", {})
    if not sampling or not speculation:
        return ""
    temperature = sampling.get("temperature", 0)
    llm = f"the LLM at temperature {temperature:g}{_in_brackets(warper_words(sampling))}"
    bars = f"Bars: {llm}; the SSMs always at temperature 1."
    if not temperature:
        bars = (
            "Bars: every model at temperature 1; this run is greedy: the LLM takes the token with "
            "its longest bar."
        )
    if not speculation.get("drafters"):
        return f"Bars: {llm}." if temperature else bars
    parts = (bars, _score(sampling, speculation), _trial(sampling, speculation))
    return " ".join(filter(None, parts))


def _in_brackets(words: list[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def warper_words(sampling: Mapping[str, Any]) -> list[str]:
    """The active warpers other than the temperature, with their values."""
    active = []
    if sampling.get("top_k"):
        active.append(f"top_k {sampling['top_k']}")
    if sampling.get("top_p", 1) < 1:
        active.append(f"top_p {sampling['top_p']:g}")
    if sampling.get("min_p", 0) > 0:
        active.append(f"min_p {sampling['min_p']:g}")
    return active


def _score(sampling: Mapping[str, Any], speculation: Mapping[str, Any]) -> str:
    score = "An SSM's score (in Who and on hover)"
    temperature = sampling.get("temperature", 0)
    if temperature and draft_kind(speculation.get("draft", "")).coupled:
        return (
            f"{score} is its probability at temperature {temperature:g} with the noise of this "
            "position, calibrated on committed tokens."
        )
    return f"{score} is the probability that its bar shows, calibrated on committed tokens."


def _trial(sampling: Mapping[str, Any], speculation: Mapping[str, Any]) -> str:
    if not verify_rule(speculation.get("verify", "")).reads_q:
        return ""
    # `sampled` draws siblings without replacement: a later sibling's q is its probability once the
    # earlier siblings' tokens are excluded.
    is_sampled = speculation.get("draft") == "sampled"
    without = ", without the tokens it drew here before" if is_sampled else ""
    branch = ""
    if speculation["verify"] == "traversal":
        branch = ", times the chance that the branch up to here has left"
    warped = f"{sampling.get('temperature', 0):g}{_in_brackets(warper_words(sampling))}"
    return (
        "In p / q, q is the chance with which the token was drawn (by an SSM: from its "
        f"distribution at temperature {warped}{without}); "
        f"p is what earlier rejections left of the LLM's bar{branch}."
    )
