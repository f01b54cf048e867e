"""How settings depend on each other: marked choices in menus, and fields without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.config import WEIGHTS, SpeculationConfig
from core.config.mechanisms import (
    PIPELINE_MODES,
    can_begin_ahead,
    choices_of,
    combine_rule,
    draft_kind,
    fields_that_depend,
    length_policy,
    lossless_rules,
    routing_rule,
    verify_rule,
    weighted_combine_rules,
    weights_stay_even,
)
from core.errors import ConfigError
from ui.run.listed import join_names

__all__ = [
    "DEFAULT_COMBINE",
    "FOLLOWERS",
    "combine_choices",
    "draft_choices",
    "idle_fields",
    "length_choices",
    "pipeline_choices",
    "routing_choices",
    "verify_choices",
    "weights_choices",
    "why_pipeline_is_idle",
]

Choices = list[tuple[str, str]]

DEFAULT_COMBINE: str = SpeculationConfig().combine
FOLLOWERS = (
    "expansion",
    "weights",
    "vote_nodes",
    "eta",
    "weight_bounds",
    "speculation_length",
    "confidence_threshold",
    "routed_drafters",
)
"""Fields that have no effect for some choice of another field."""

# -- menus --


def draft_choices(
    temperature: float,
    verify: str = "auto",
    combine: str = DEFAULT_COMBINE,
    weights: str = WEIGHTS[0],
) -> Choices:
    """(label, name) for each draft kind; the label marks refused, lossy and equivalent kinds."""
    return [
        (_draft_label(draft, verify, temperature, combine, weights), draft)
        for draft in choices_of("draft")
    ]


def _draft_label(draft: str, verify: str, temperature: float, combine: str, weights: str) -> str:
    if draft_kind(draft).fused and not combine_rule(combine).keeps_all:
        return f"{draft} (refused with combine {combine}: the SSMs make one tree)"
    if draft != "auto" and not lossless_rules(draft, temperature, combine):
        return f"{draft} (refused at temperature {temperature:g}: every draw is the best token)"
    if not _lossless(draft, verify, temperature, combine):
        return f"{draft} (not lossless with verify {verify}{_conditions(temperature, combine)})"
    if draft_kind(draft).by_score and combine_rule(combine).chains:
        resolved = SpeculationConfig(draft=draft, combine=combine).resolve(temperature).draft
        return f"{draft} (as {resolved}: {combine} chooses among sequences, one token a step)"
    if draft_kind(draft).by_credit and weights_stay_even(weights, combine):
        return f"{draft} (as fused: {weights} weights stay even, no draft wins)"
    return f"{draft} ({draft_kind(draft).label})"


def verify_choices(draft: str, temperature: float, combine: str = DEFAULT_COMBINE) -> Choices:
    """(label, name) for each verification rule; the label marks rules that are not lossless."""
    return [
        (_verify_label(rule, draft, temperature, combine), rule) for rule in choices_of("verify")
    ]


def _verify_label(rule: str, draft: str, temperature: float, combine: str) -> str:
    if not _lossless(draft, rule, temperature, combine):
        return f"{rule} (not lossless with draft {draft}{_conditions(temperature, combine)})"
    return f"{rule} ({verify_rule(rule).label})"


def combine_choices(draft: str, verify: str, temperature: float) -> Choices:
    """(label, name) for each combine rule; a label may mark a refused or lossy rule."""
    return [
        (_combine_label(rule, draft, verify, temperature), rule) for rule in choices_of("combine")
    ]


def _combine_label(rule: str, draft: str, verify: str, temperature: float) -> str:
    keeps_all = combine_rule(rule).keeps_all
    if draft_kind(draft).fused and not keeps_all:
        return f"{rule} (refused with draft {draft}: the SSMs make one tree)"
    # If the default rule, which drops nothing, is not lossless either, the draft and verify menus
    # name the reason instead.
    lossless = _lossless(draft, verify, temperature, rule)
    if keeps_all or lossless or not _lossless(draft, verify, temperature, DEFAULT_COMBINE):
        return f"{rule} ({combine_rule(rule).label})"
    return f"{rule} (not lossless with verify {verify}: a selected token is no random draw)"


def weights_choices(combine: str = DEFAULT_COMBINE, draft: str = "auto") -> Choices:
    """(label, name) for each weight rule; a rule is marked if its weights are read but stay
    equal."""
    rule = combine_rule(combine)
    is_read = rule.weighted or draft_kind(draft).by_credit
    note = f" (stays even: {combine} has no winner to reward)"
    return [
        (f"{name}{note if is_read and weights_stay_even(name, combine) else ''}", name)
        for name in WEIGHTS
    ]


def routing_choices() -> Choices:
    """(label, name) for each routing rule."""
    return [(f"{name} ({routing_rule(name).label})", name) for name in choices_of("routing")]


def length_choices() -> Choices:
    """(label, name) for each length policy."""
    return [(f"{name} ({length_policy(name).label})", name) for name in choices_of("length")]


def pipeline_choices(combine: str = DEFAULT_COMBINE, draft: str = "auto") -> Choices:
    """(label, name) for each pipeline mode; `ahead` is marked if it has no effect."""
    labels = {name: mode.label for name, mode in PIPELINE_MODES.items()}
    if not can_begin_ahead(draft, combine):
        labels["ahead"] = f"does nothing: {_starts_late(combine, draft)}"
    return [(f"{name} ({labels[name]})", name) for name in choices_of("pipeline")]


def why_pipeline_is_idle(pipeline: str, combine: str, draft: str) -> str:
    """Why `pipeline` has no effect, at least for a request by itself; else empty."""
    if can_begin_ahead(draft, combine) or pipeline not in ("ahead", "auto"):
        return ""
    condition = "" if pipeline == "ahead" else " for a request by itself"
    return f"Does nothing{condition}: {_starts_late(combine, draft)}."


def _starts_late(combine: str, draft: str) -> str:
    """Which rule makes drafting ahead impossible (the draft kind or the combine rule), and why."""
    rule = f"draft {draft}" if combine_rule(combine).ahead else f"combine {combine}"
    return f"{rule} starts its tree only after the previous verdict"


def _conditions(temperature: float, combine: str) -> str:
    rule = "" if combine == DEFAULT_COMBINE else f" and combine {combine}"
    return f"{rule} at temperature {temperature:g}"


def _lossless(draft: str, verify: str, temperature: float, combine: str) -> bool:
    try:
        SpeculationConfig(draft=draft, verify=verify, combine=combine).resolve(temperature)
    except ConfigError:
        return False
    return True


# -- fields without effect --


def idle_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Field -> why it has no effect under these settings; fields with an effect are left out."""
    combine, length = combine_rule(fields["combine"]), length_policy(fields["length"])
    chosen = (f"combine={combine.name}", f"length={length.name}", f"routing={fields['routing']}")
    idle: dict[str, str] = {}
    draft = draft_kind(fields["draft"])
    if draft.fused:
        idle["expansion"] = f"Not used: {draft.name} is one chain with side leaves."
    elif combine.chains:
        idle["expansion"] = f"Not used: {combine.name} chooses among sequences, one token a step."
    if not combine.weighted and not draft.by_credit:
        idle["weights"] = (
            f"Not used: {combine.name} reads no weights; {join_names(weighted_combine_rules())} do."
        )
    for name, readers in fields_that_depend().items():
        if not set(readers) & set(chosen):
            verb = "reads" if len(readers) == 1 else "read"
            idle[name] = f"Not used: only {join_names(readers)} {verb} it."
    if not combine.chains or fields["weights"] != "paper":
        reason = "Not used: only weights=paper with a combine rule that has a winner reads it."
        idle |= {"eta": reason, "weight_bounds": reason}
    return idle | {name: f"Not used: {reason}." for name, reason in length.ignores.items()}
