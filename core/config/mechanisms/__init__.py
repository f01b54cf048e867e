"""The mechanisms that a SpeculationConfig or an engine's `schedule` chooses from, one record each.

`label` describes a record in a menu, `meaning` elsewhere. `implementation` is an import path
`module:name`: the records import neither torch nor a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.config.mechanisms.combine_rules import COMBINE_RULES, CombineRule, PictureWords
from core.config.mechanisms.draft_kinds import DRAFT_KINDS, DraftKind
from core.config.mechanisms.length_policies import LENGTH_POLICIES, LengthPolicyRecord
from core.config.mechanisms.model_free import (
    MODEL_FREE,
    NGRAM,
    SUFFIX,
    TABLE,
    is_model_free,
    is_own,
    own_among,
)
from core.config.mechanisms.records import implementation_of
from core.config.mechanisms.round_rules import (
    PIPELINE_MODES,
    ROUTING_RULES,
    SCHEDULES,
    PipelineMode,
    RoutingRule,
    ScheduleRule,
)
from core.config.mechanisms.verify_rules import VERIFY_RULES, VerifyRule

__all__ = [
    "COMBINE_RULES",
    "DRAFT_KINDS",
    "LENGTH_POLICIES",
    "MODEL_FREE",
    "NGRAM",
    "SUFFIX",
    "TABLE",
    "PIPELINE_MODES",
    "PRESETS",
    "VERIFY_RULES",
    "WEIGHTS",
    "CombineRule",
    "DraftKind",
    "LengthPolicyRecord",
    "PictureWords",
    "PipelineMode",
    "ROUTING_RULES",
    "RoutingRule",
    "SCHEDULES",
    "ScheduleRule",
    "VerifyRule",
    "choices_of",
    "combine_rule",
    "draft_kind",
    "can_begin_ahead",
    "drafts_together",
    "fields_that_depend",
    "implementation_of",
    "is_model_free",
    "is_own",
    "length_policy",
    "lossless_rules",
    "own_among",
    "routing_rule",
    "token_exact_rules",
    "verify_rule",
    "weighted_combine_rules",
    "weights_stay_even",
]

WEIGHTS = ("full_information", "paper")
PRESETS = (
    *("autoregressive", "sequence", "specinfer", "specinfer-paper"),
    *("minions", "cosine", "best"),
)


def choices_of(name: str) -> tuple[str, ...]:
    """The names allowed in a field of SpeculationConfig."""
    registries: dict[str, Mapping[str, Any]] = {
        "combine": COMBINE_RULES,
        "length": LENGTH_POLICIES,
        "draft": DRAFT_KINDS,
        "verify": VERIFY_RULES,
        "pipeline": PIPELINE_MODES,
        "routing": ROUTING_RULES,
    }
    return WEIGHTS if name == "weights" else tuple(registries[name])


def combine_rule(name: str) -> CombineRule:
    """The record of a combine rule; for an unknown name, a record with default fields."""
    # A run that another version recorded must stay readable.
    return COMBINE_RULES.get(name) or CombineRule(name, name, "")


def length_policy(name: str) -> LengthPolicyRecord:
    """The record of a length policy (see `combine_rule`)."""
    return LENGTH_POLICIES.get(name) or LengthPolicyRecord(name, name, "")


def draft_kind(name: str) -> DraftKind:
    """The record of a draft kind (see `combine_rule`)."""
    return DRAFT_KINDS.get(name) or DraftKind(name)


def verify_rule(name: str) -> VerifyRule:
    """The record of a verification rule (see `combine_rule`)."""
    return VERIFY_RULES.get(name) or VerifyRule(name, name)


def drafts_together(draft: str, combine: str) -> bool:
    """Whether the SSMs draft one tree in lock-step."""
    return combine_rule(combine).is_pooled or draft_kind(draft).fused


def can_begin_ahead(draft: str, combine: str) -> bool:
    """Whether a round's drafts may begin before the previous round is verified."""
    return combine_rule(combine).ahead and not draft_kind(draft).fused


def routing_rule(name: str) -> RoutingRule:
    """The record of a routing rule (see `combine_rule`)."""
    return ROUTING_RULES.get(name) or RoutingRule(name, name)


def weighted_combine_rules() -> tuple[str, ...]:
    """Names of the rules that read the drafters' weights."""
    return tuple(rule.name for rule in COMBINE_RULES.values() if rule.weighted)


def weights_stay_even(weights: str, combine: str) -> bool:
    """Whether the drafters' weights never change: `paper` rewards the winners of votes only."""
    return weights == "paper" and not combine_rule(combine).chains


def token_exact_rules() -> tuple[str, ...]:
    """Names of the verification rules that commit exactly the tokens of plain decoding."""
    return tuple(rule.name for rule in VERIFY_RULES.values() if rule.token_exact)


def lossless_rules(draft: str, temperature: float, combine: str = "union") -> tuple[str, ...]:
    """The verification rules that are lossless with this draft kind and combine rule at this
    temperature, the default first."""
    if draft_kind(draft).fused and not combine_rule(combine).keeps_all:
        return ()  # the SSMs make one tree: the rule has no drafts to choose among
    drawn = draft_kind(draft).drawn
    if temperature == 0.0 and drawn:
        return ()  # every draw is the arg max
    # A proposal that was selected among others is not a draw from q.
    has_q = drawn and combine_rule(combine).keeps_all
    lossless = [
        rule
        for rule in VERIFY_RULES.values()
        if rule.implementation and rule.suits(temperature) and (has_q or not rule.reads_q)
    ]
    return tuple(rule.name for rule in sorted(lossless, key=lambda rule: not rule.reads_q))


def fields_that_depend() -> Mapping[str, tuple[str, ...]]:
    """The names in the records' `fields`, each with the records that list it, such as
    `combine=vote_tree`."""
    readers: dict[str, list[str]] = {}
    registries: Mapping[str, Mapping[str, Any]] = {
        "combine": COMBINE_RULES,
        "length": LENGTH_POLICIES,
        "routing": ROUTING_RULES,
    }
    for setting, records in registries.items():
        for record in records.values():
            for name in record.fields:
                readers.setdefault(name, []).append(f"{setting}={record.name}")
    return {name: tuple(settings) for name, settings in readers.items()}
