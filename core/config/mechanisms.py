"""The mechanisms that a SpeculationConfig chooses from, each with its facts (no torch, no model).

One record per combine rule, length policy, draft kind, verification rule and pipeline mode. All
else is derived from these records: the allowed names, the validity matrix (`lossless_rules`),
shares of the node budget, which fields matter, the menus of the page, the words in its pictures,
the guide's tables. A new combine rule or length policy is its own file, a record here, and its
test.

`label` is a record's meaning in a menu, `meaning` the same at more length, in docs/guide.md.
`implementation` is `module:name`, imported when first used: configuration never imports torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

__all__ = [
    "COMBINE_RULES",
    "DRAFT_KINDS",
    "LENGTH_POLICIES",
    "NGRAM",
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
    "length_policy",
    "lossless_rules",
    "routing_rule",
    "verify_rule",
    "weighted_combine_rules",
]

NGRAM = "ngram"
"""The drafter that is no SSM: prompt lookup."""

WEIGHTS = ("full_information", "paper")
PRESETS = (
    *("autoregressive", "sequence", "specinfer", "specinfer-paper"),
    *("minions", "cosine", "best"),
)


@dataclass(frozen=True, slots=True)
class PictureWords:
    """What the page's pictures write of a combine rule.

    `dropped`: why a node is not in the tree; `dropped_short` the same as a participle; `unverified`
    of one proposal. `legend`: what the marks mean. `mass`: what the number of a node is, in the
    tree; `proposal_mass` among the proposals; `mass_symbol` and `mass_meaning` say how it is made.
    """

    dropped: str = "Dropped: not worth the time of verifying it"
    dropped_short: str = "dropped"
    unverified: str = "Dropped before the LLM saw it"
    legend: str = ""
    mass: str = ""
    proposal_mass: str = ""
    mass_symbol: str = "Σ"
    mass_meaning: str = ""


@dataclass(frozen=True, slots=True)
class CombineRule:
    """How the drafts of several drafters become one token tree.

    `implementation`: a `Combiner` of core.trees.combine. `node_budget`: each drafter has a share of
    `max_tree_nodes` (`divided`), all of it (`each`), or the SSMs have one share together (`pooled`:
    they draft one tree in lock-step). `weighted`: reads the drafters' weights. `chains`: drafts are
    sequences, of which one wins. `keeps_all`: nothing that was drafted is dropped, so draws stay
    draws and `mss` and `traversal` are lossless. `ahead`: its drafts may begin before the previous
    verdict. `fields`: of SpeculationConfig, read by it alone.
    """

    name: str
    label: str
    implementation: str
    node_budget: Literal["divided", "each", "pooled"] = "divided"
    weighted: bool = False
    chains: bool = False
    keeps_all: bool = False
    ahead: bool = True
    fields: tuple[str, ...] = ()
    meaning: str = ""
    words: PictureWords = field(default_factory=PictureWords)

    @property
    def pooled(self) -> bool:
        """The SSMs draft one tree together, token by token."""
        return self.node_budget == "pooled"

    @property
    def one_draft(self) -> bool:
        """All drafters together yield one draft: none can be left out by itself."""
        return self.chains or self.pooled


@dataclass(frozen=True, slots=True)
class LengthPolicyRecord:
    """How the speculation length is chosen.

    `implementation`: a callable (SpeculationConfig, Costs) -> LengthPolicy. `given`: the length is
    the user's number, else the policy finds it. `predicts`: it predicts each round's time.
    `chooses_drafters`: it decides each round which drafters draft. `fields`: read by it alone;
    `ignores`: fields it does not read, with the reason. For the pictures: `always`, of a length
    that never changes; `no_estimates`, why there are none to draw (empty: nothing is written);
    `no_drafts`, why a run drafted nearly nothing (`{field}` stands for a field's value).
    """

    name: str
    label: str
    implementation: str
    given: bool = False
    predicts: bool = False
    chooses_drafters: bool = False
    fields: tuple[str, ...] = ()
    ignores: Mapping[str, str] = field(default_factory=dict)
    always: str = ""
    no_estimates: str = "No estimates in this round."
    no_drafts: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class DraftKind:
    """How a drafter chooses the children of a node. `drawn`: at random, verified with their q;
    `coupled`: with the target's own noise; `by_score`: a node budget instead of a shape. `fused`:
    the SSMs draft one trunk together, `by_credit` with each one's score times its weight."""

    name: str
    label: str = ""
    drawn: bool = False
    coupled: bool = False
    by_score: bool = False
    fused: bool = False
    by_credit: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class VerifyRule:
    """When the LLM accepts a drafted token. `implementation`: a `Rule` of core.trees.verify.
    `reads_q`: it needs the probabilities that proposals were drawn with, so nothing drawn may be
    dropped."""

    name: str
    label: str
    implementation: str = ""
    reads_q: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """Which SSMs draft in a round. `implementation`: a callable (names, count, round_ms) -> Router
    of core.routing, empty where all of them do. `reads_likelihoods`: drafters keep their
    probabilities of the committed tokens for it. `score`: what its score of an SSM is. `fields`: as
    in CombineRule."""

    name: str
    label: str
    implementation: str = ""
    reads_likelihoods: bool = False
    score: str = ""
    fields: tuple[str, ...] = ()
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """How an engine divides its rounds among live requests; a setting of the engine, not of a
    request. `implementation`: a callable (BatchTimes) -> Scheduler of core.scheduling, empty where
    nothing is planned together."""

    name: str
    label: str
    implementation: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class PipelineMode:
    """What drafters do during the LLM's pass."""

    name: str
    label: str
    meaning: str = ""


# -- the registries --

_VOTE = PictureWords(
    dropped="Lost the vote: another sequence had more weight behind it",
    dropped_short="lost the vote",
    unverified="Lost the vote: the LLM never saw it",
    legend=" ★ won the vote, dotted lost it.",
    mass="weight behind it",
    proposal_mass="weight behind it",
    mass_meaning="Σ: the weights of all SSMs that drafted this token on this path, added up.",
)
_VOTE_TREE = PictureWords(
    dropped="Not among the best nodes by weighted score",
    dropped_short="not kept",
    unverified="Not among the best nodes: the LLM never saw it",
    legend=" Dotted: not kept.",
    mass="weighted score",
    proposal_mass="weighted score of its path",
    mass_meaning=(
        "Σ: how likely the SSMs held the path as far as this token, a mean by their weights; the "
        "nodes of the largest Σ are kept."
    ),
)
_LOG_POOL = PictureWords(
    mass="pooled chance",
    proposal_mass="pooled score",
    mass_symbol="∏",
    mass_meaning=(
        "∏: the geometric mean, by weight, of the SSMs' scores of this token after the one before "
        "it."
    ),
)


def _by_name(records: Iterable[Any]) -> Mapping[str, Any]:
    return MappingProxyType({record.name: record for record in records})


COMBINE_RULES: Mapping[str, CombineRule] = _by_name(
    [
        CombineRule(
            "union",
            "all drafts in one tree",
            "core.trees.combine.base:union",
            keeps_all=True,
            meaning="the drafts of all drafters are merged into one tree",
            words=PictureWords(dropped="Dropped: the node budget was full"),
        ),
        CombineRule(
            "vote",
            "one sequence wins",
            "core.trees.combine.vote:vote",
            node_budget="each",
            weighted=True,
            chains=True,
            meaning="each SSM drafts one sequence; a weighted vote decides which one is verified",
            words=_VOTE,
        ),
        CombineRule(
            "vote_tree",
            "best nodes by score",
            "core.trees.combine.vote:vote_tree",
            node_budget="each",
            weighted=True,
            fields=("vote_nodes",),
            meaning="of the merged drafts, the `vote_nodes` nodes with the best weighted score",
            words=_VOTE_TREE,
        ),
        CombineRule(
            "log_pool",
            "SSMs choose together",
            "core.trees.combine.base:log_pool",
            node_budget="pooled",
            weighted=True,
            ahead=False,
            meaning="the SSMs draft one tree together, choosing every token by a weighted mean",
            words=_LOG_POOL,
        ),
    ]
)

LENGTH_POLICIES: Mapping[str, LengthPolicyRecord] = _by_name(
    [
        LengthPolicyRecord(
            "fixed",
            "always speculation_length",
            "core.length.fixed:Fixed",
            given=True,
            meaning="always `speculation_length` tokens",
            always="the length is always the one that was set",
            no_estimates="",
        ),
        LengthPolicyRecord(
            "trend",
            "longer while it is faster",
            "core.length.trend:Trend",
            meaning="one token more while that lowers the LLM's time per token, else two fewer",
            no_estimates="trend compares what it measured; it estimates no other length.",
        ),
        LengthPolicyRecord(
            "goodput",
            "while one more pays",
            "core.length.goodput:Goodput",
            predicts=True,
            chooses_drafters=True,
            meaning="as long as one more token is expected to pay for its time, down to none",
            ignores={"speculation_length": "goodput finds the length itself"},
            no_drafts=(
                "By what goodput measured here, no draft was expected to bring the text faster."
            ),
        ),
        LengthPolicyRecord(
            "confidence",
            "while an SSM is sure",
            "core.length.confidence:Confidence",
            given=True,
            fields=("confidence_threshold",),
            meaning="`speculation_length` at most, less after a score under `confidence_threshold`",
            no_estimates="confidence stops by score; it estimates no length.",
            no_drafts="No guess was as sure as confidence_threshold={confidence_threshold}.",
        ),
    ]
)

DRAFT_KINDS: Mapping[str, DraftKind] = _by_name(
    [
        DraftKind(
            "auto",
            "what suits verify",
            meaning="`topk` at temperature 0, above it what suits `verify`",
        ),
        DraftKind("topk", "the likeliest tokens", meaning="the SSM's most probable tokens"),
        DraftKind(
            "coupled",
            "with the LLM's own noise",
            coupled=True,
            meaning="the SSM's choice under the noise with which the LLM will choose",
        ),
        DraftKind(
            "sampled",
            "drawn, each once",
            drawn=True,
            meaning="tokens drawn from the SSM without replacement",
        ),
        DraftKind(
            "sampled_iid",
            "drawn, with repeats",
            drawn=True,
            meaning="tokens drawn independently, repeats included",
        ),
        DraftKind(
            "best_first",
            "likeliest paths first",
            coupled=True,
            by_score=True,
            meaning="no fixed shape: the most probable paths first, until the node budget is spent",
        ),
        DraftKind(
            "fused",
            "SSMs write one chain, the surest decides",
            coupled=True,
            fused=True,
            meaning=(
                "the SSMs write one chain together: at each place each proposes a token, and that "
                "of the surest SSM is taken (CoSine)"
            ),
        ),
        DraftKind(
            "fused_credit",
            "fused; who predicted well counts more",
            coupled=True,
            fused=True,
            by_credit=True,
            meaning=(
                "as `fused`, but an SSM that has predicted this text well counts for more, so that "
                "one that is sure and wrong stops being taken"
            ),
        ),
    ]
)

VERIFY_RULES: Mapping[str, VerifyRule] = _by_name(
    [
        VerifyRule(
            "auto",
            "the first exact rule",
            meaning="the first rule that is exact for this draft and temperature",
        ),
        VerifyRule(
            "greedy",
            "the LLM's best token",
            "core.trees.verify.walk:greedy",
            meaning="a token is accepted if it is the LLM's most probable one",
        ),
        VerifyRule(
            "match",
            "what the LLM itself draws",
            "core.trees.verify.walk:match",
            meaning="a token is accepted if the LLM itself draws it with this seed",
        ),
        VerifyRule(
            "mss",
            "a coin a draft, root first",
            "core.trees.verify.walk:mss",
            reads_q=True,
            meaning="in turn from the root on, each accepted with probability min(1, p / q)",
        ),
        VerifyRule(
            "traversal",
            "coins, leaves first",
            "core.trees.verify.traversal:traversal",
            reads_q=True,
            meaning="from the leaves back to the root, which is expected to accept more than `mss`",
        ),
    ]
)

PIPELINE_MODES: Mapping[str, PipelineMode] = _by_name(
    [
        PipelineMode("off", "first draft, then verify", "drafting and verifying take turns"),
        PipelineMode(
            "across",
            "draft for other requests",
            "while the LLM verifies, SSMs draft for other requests",
        ),
        PipelineMode(
            "ahead",
            "draft on behind a guess",
            "while the LLM verifies, SSMs draft on from what it will most likely accept",
        ),
        PipelineMode(
            "auto",
            "while it is faster",
            "pipelining is switched on and off by what is measured to be faster",
        ),
    ]
)


ROUTING_RULES: Mapping[str, RoutingRule] = _by_name(
    [
        RoutingRule("all", "every SSM drafts", meaning="every SSM drafts in every round"),
        RoutingRule(
            "cosine",
            "by how good its drafts were",
            "core.routing.cosine:CosineRouter",
            score=(
                "how sure it was of the tokens that it drafted, and how near they came to the "
                "LLM's; from 0 to 1"
            ),
            fields=("routed_drafters",),
            meaning=(
                "`routed_drafters` SSMs draft: those that were sure of their tokens and came near "
                "to the LLM's; after a round with few accepted tokens half of them are SSMs that "
                "drafted least so far, to learn what they are worth (CoSine)"
            ),
        ),
        RoutingRule(
            "credit",
            "predicts the text best",
            "core.routing.credit:CreditRouter",
            reads_likelihoods=True,
            score="tokens a second that it is expected to bring if it drafted alone",
            fields=("routed_drafters",),
            meaning=(
                "`routed_drafters` SSMs draft: those that give the text's last tokens the highest "
                "probability, for the time they take; all SSMs are asked again now and then, and "
                "at once when the text changes"
            ),
        ),
    ]
)


SCHEDULES: Mapping[str, ScheduleRule] = _by_name(
    [
        ScheduleRule(
            "each",
            "a budget for each request",
            "",
            "every request drafts and is verified as if it were alone",
        ),
        ScheduleRule(
            "cosine",
            "like lengths together",
            "core.scheduling.cosine:Cosine",
            (
                "requests whose texts are of like length share a pass; the more requests wait in "
                "the queue, the fewer tokens are drafted, down to none (CoSine)"
            ),
        ),
        ScheduleRule(
            "shared",
            "one budget for all requests",
            "core.scheduling.shared:Shared",
            (
                "the likeliest drafted tokens of all requests are verified, as many as pay; "
                "no request drafts while plain decoding is measured to be faster"
            ),
        ),
    ]
)


# -- derived values --


def choices_of(name: str) -> tuple[str, ...]:
    """The values that a field of SpeculationConfig may have: `combine`, `routing`, `weights`,
    `length`, `draft`, `verify` or `pipeline`."""
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
    """The record of a combine rule; for an unknown name (a run recorded by another version) a
    record with the name only."""
    return COMBINE_RULES.get(name) or CombineRule(name, name, "")


def length_policy(name: str) -> LengthPolicyRecord:
    """The record of a length policy; of an unknown name as in `combine_rule`."""
    return LENGTH_POLICIES.get(name) or LengthPolicyRecord(name, name, "")


def draft_kind(name: str) -> DraftKind:
    """The record of a draft kind; of an unknown name as in `combine_rule`."""
    return DRAFT_KINDS.get(name) or DraftKind(name)


def verify_rule(name: str) -> VerifyRule:
    """The record of a verification rule; of an unknown name as in `combine_rule`."""
    return VERIFY_RULES.get(name) or VerifyRule(name, name)


def drafts_together(draft: str, combine: str) -> bool:
    """Whether the SSMs draft in lock-step, within one share of the node budget. Such drafts are
    not begun ahead: every SSM would have to guess the same outcomes."""
    return combine_rule(combine).pooled or draft_kind(draft).fused


def can_begin_ahead(draft: str, combine: str) -> bool:
    """Whether drafts may begin before the previous verdict."""
    return combine_rule(combine).ahead and not draft_kind(draft).fused


def routing_rule(name: str) -> RoutingRule:
    """The record of a routing rule; of an unknown name as in `combine_rule`."""
    return ROUTING_RULES.get(name) or RoutingRule(name, name)


def weighted_combine_rules() -> tuple[str, ...]:
    """Names of the rules that read the drafters' weights."""
    return tuple(rule.name for rule in COMBINE_RULES.values() if rule.weighted)


def lossless_rules(draft: str, temperature: float, combine: str = "union") -> tuple[str, ...]:
    """The verification rules under which a draft kind and a combine rule are lossless, the default
    first; empty where they are refused.
    """
    if draft_kind(draft).fused and combine != "union":
        return ()  # the SSMs make one tree: there is nothing to choose among
    drawn = draft_kind(draft).drawn
    if temperature == 0.0:
        # At temperature 0 every draw is the arg max: drawn drafts are refused, and the others need
        # no q.
        return () if drawn else ("greedy", "match")
    # A proposal that a rule selected among others is conditioned on being selected: it is not a
    # draw from q any more.
    if drawn and combine_rule(combine).keeps_all:
        return ("mss", "traversal", "match")
    return ("match",)


def fields_that_depend() -> Mapping[str, tuple[str, ...]]:
    """Fields that single mechanisms read, each with the settings that do, as `field=name`."""
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


@cache
def implementation_of(path: str) -> Any:
    """Imports `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
