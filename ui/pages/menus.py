"""What each setting allows the others: menus that mark what would not be lossless, and controls
that do not matter for the rule that was chosen.

Knows core's validity matrix and the fields' names; no component and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from core.choices import NOT_AHEAD, PIPELINES, WEIGHTED_COMBINES
from core.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    VERIFIES,
    WEIGHTS,
    SpeculationConfig,
    lossless_rules,
)
from core.errors import ConfigError

__all__ = [
    "COMBINING",
    "FOLLOWERS",
    "LENGTHENING",
    "PIPELINING",
    "VERIFYING",
    "combine_choices",
    "draft_choices",
    "idle_fields",
    "length_choices",
    "pipeline_choices",
    "pipeline_idles",
    "verify_choices",
    "weights_choices",
]

Choices = list[tuple[str, str]]

FOLLOWERS = (
    "expansion",
    "weights",
    "vote_nodes",
    "eta",
    "weight_bounds",
    "speculation_length",
    "confidence_threshold",
)
"""Fields that some choice of another field makes idle."""

PIPELINING = MappingProxyType(
    {
        "off": "first draft, then verify",
        "across": "draft for other requests",
        "ahead": "draft on behind a guess",
        "auto": "ahead while it is faster",
    }
)
"""What the drafters do during the LLM's pass, by the value of `pipeline`."""

COMBINING = MappingProxyType(
    {
        "union": "all drafts in one tree",
        "vote": "one sequence wins",
        "vote_tree": "best nodes by score",
        "log_pool": "SSMs choose together",
    }
)
"""What becomes of several SSMs' drafts, by the value of `combine`."""

LENGTHENING = MappingProxyType(
    {
        "fixed": "always speculation_length",
        "trend": "longer while it is faster",
        "goodput": "while one more pays",
        "confidence": "while an SSM is sure",
    }
)
"""Who decides how far to draft, by the value of `length`."""

VERIFYING = MappingProxyType(
    {
        "auto": "the first exact rule",
        "greedy": "the LLM's best token",
        "match": "what the LLM itself draws",
        "mss": "a coin a draft, root first",
        "traversal": "coins, leaves first",
    }
)
"""When the LLM accepts a drafted token, by the value of `verify`."""


# -- menus --


def draft_choices(temperature: float, verify: str = "auto", combine: str = "union") -> Choices:
    """Draft kinds with a label; one that is refused at this temperature, or would not be lossless
    with this rule, says so."""
    return [(_draft_label(draft, verify, temperature, combine), draft) for draft in DRAFTS]


def _draft_label(draft: str, verify: str, temperature: float, combine: str) -> str:
    if draft != "auto" and not lossless_rules(draft, temperature, combine):
        return f"{draft} (refused at temperature {temperature:g}: every draw is the best token)"
    if not _lossless(draft, verify, temperature, combine):
        return f"{draft} (not lossless with verify {verify}{_at(temperature, combine)})"
    if draft == "best_first" and combine == "vote":
        becomes = SpeculationConfig(draft=draft, combine=combine).resolved(temperature).draft
        return f"{draft} (as {becomes}: a vote is over sequences, one token a step)"
    return draft


def verify_choices(draft: str, temperature: float, combine: str = "union") -> Choices:
    """Rules with a label; one that would not be lossless with this draft kind says so."""
    return [(_verify_label(rule, draft, temperature, combine), rule) for rule in VERIFIES]


def _verify_label(rule: str, draft: str, temperature: float, combine: str) -> str:
    if not _lossless(draft, rule, temperature, combine):
        return f"{rule} (not lossless with draft {draft}{_at(temperature, combine)})"
    return f"{rule} ({VERIFYING[rule]})"


def combine_choices(draft: str, verify: str, temperature: float) -> Choices:
    """Combine rules with a label: what is voted on or pooled is no draw any more, so that rules
    made for draws are not lossless with it."""
    return [(_combine_label(rule, draft, verify, temperature), rule) for rule in COMBINES]


def _combine_label(rule: str, draft: str, verify: str, temperature: float) -> str:
    fault = not _lossless(draft, verify, temperature, rule)
    # Where a union is not either, it is not its fault: the draft and verify menus say whose.
    if not fault or not _lossless(draft, verify, temperature, "union"):
        return f"{rule} ({COMBINING[rule]})"
    return f"{rule} (not lossless with verify {verify}: what is chosen is no draw any more)"


def weights_choices(combine: str) -> Choices:
    """`paper` rewards whoever wins a vote: without a winner its weights never move."""
    moves = combine == "vote" or combine not in WEIGHTED_COMBINES
    still = f"paper (stays even: {combine} has no winner to reward)"
    return [(rule if rule != "paper" or moves else still, rule) for rule in WEIGHTS]


def length_choices() -> Choices:
    """Rules for the length, each with its meaning."""
    return [(f"{name} ({LENGTHENING[name]})", name) for name in LENGTHS]


def pipeline_choices(combine: str = "union") -> Choices:
    """Ways of pipelining that there are, each with its meaning; one that does nothing with this
    combine rule says so."""
    still = f"does nothing with {combine}, which cannot begin its tree behind a guess"
    told = {**PIPELINING, "ahead": still} if combine in NOT_AHEAD else PIPELINING
    return [(f"{name} ({told[name]})", name) for name in PIPELINES]


def pipeline_idles(pipeline: str, combine: str) -> str:
    """Why this choice of `pipeline` changes nothing, empty where it does.

    The control is not greyed: another choice may do something.
    """
    if combine not in NOT_AHEAD or pipeline not in ("ahead", "auto"):
        return ""
    alone = "" if pipeline == "ahead" else " for a request by itself"
    return f"Does nothing{alone}: {combine} cannot begin its tree behind a guess."


def _at(temperature: float, combine: str) -> str:
    with_rule = "" if combine == "union" else f" and combine {combine}"
    return f"{with_rule} at temperature {temperature:g}"


def _lossless(draft: str, verify: str, temperature: float, combine: str) -> bool:
    try:
        SpeculationConfig(draft=draft, verify=verify, combine=combine).resolved(temperature)
    except ConfigError:
        return False
    return True


# -- fields that do not matter --


def idle_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Field -> why it changes nothing with these settings; fields that matter are left out."""
    combine, weights, length = fields["combine"], fields["weights"], fields["length"]
    idle: dict[str, str] = {}
    if combine == "vote":
        idle["expansion"] = "Not used: a vote is over sequences, one token a step."
    if combine not in WEIGHTED_COMBINES:
        idle["weights"] = f"Not used: {combine} weighs nobody; vote, vote_tree and log_pool do."
    if combine != "vote_tree":
        idle["vote_nodes"] = f"Not used: vote_tree keeps a number of nodes, {combine} does not."
    if combine != "vote" or weights != "paper":
        reason = "Not used: only weights=paper in a vote rewards and bounds."
        idle |= {"eta": reason, "weight_bounds": reason}
    if length == "goodput":
        idle["speculation_length"] = "Not used: goodput finds the length itself."
    if length != "confidence":
        idle["confidence_threshold"] = f"Not used: length is {length}, not confidence."
    return idle
