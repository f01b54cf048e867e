"""The combine rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from core.config.mechanisms.records import by_name

__all__ = ["COMBINE_RULES", "CombineRule", "PictureWords"]


@dataclass(frozen=True, slots=True)
class PictureWords:
    """Texts of the page's pictures about a combine rule.

    `dropped` and `dropped_short`: why a node is not in the tree. `unverified`: why a proposal was
    not verified. `mass`: the name of the number at a tree node; `proposal_mass`: the name of the
    number at a proposal. `mass_symbol`, `mass_meaning`: how the number is computed.
    """

    dropped: str = "Dropped: not worth the time of verifying it"
    dropped_short: str = "not worth verifying"
    unverified: str = "Dropped before the LLM saw it"
    legend: str = ""
    mass: str = ""
    proposal_mass: str = ""
    mass_symbol: str = "Σ"
    mass_meaning: str = ""


@dataclass(frozen=True, slots=True)
class CombineRule:
    """How the drafts of several drafters become one token tree.

    `implementation`: a `Combiner` of core.trees.combine. `node_budget`: see `node_shares` of
    core.config.budget. `weighted`: the rule reads the drafters' weights. `chains`: drafts are
    sequences, and one sequence wins. `keeps_all`: the rule drops no drafted node and pools no SSMs.
    `ahead`: a round's drafts may begin before the previous round is verified. `fields`: fields of
    SpeculationConfig that matter only for the rules that list them.

    Sentences next to the page's pictures: `result` sums up the drafts of a round; `result_all`
    replaces `result` if every drafted node was kept. `{kept}` and `{drafted}` stand for numbers of
    nodes, `{nodes}` for "5 nodes" in the tree, `{ssms}` for "3 SSMs".
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
    result: str = "{kept} of {drafted} drafted nodes were kept."
    result_all: str = ""
    words: PictureWords = field(default_factory=PictureWords)

    @property
    def is_pooled(self) -> bool:
        """Whether the SSMs draft one tree together, token by token."""
        return self.node_budget == "pooled"

    @property
    def one_draft(self) -> bool:
        """Whether the SSMs together give one draft."""
        return self.chains or self.is_pooled


_VOTE = PictureWords(
    dropped="Lost the vote: another sequence had more weight behind it",
    dropped_short="lost the vote",
    unverified="Lost the vote: not verified by the LLM",
    legend=" ★ won the vote, dotted lost it.",
    mass="weight behind it",
    proposal_mass="weight behind it",
    mass_meaning="Σ: the weights of all SSMs that drafted this token on this path, added up.",
)
_VOTE_TREE = PictureWords(
    dropped="Not among the best nodes by weighted score",
    dropped_short="not kept",
    unverified="Not among the best nodes: not verified by the LLM",
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

# In the order of the page's menu.
COMBINE_RULES: Mapping[str, CombineRule] = by_name(
    [
        # SpecInfer's merge (arXiv 2305.09781, section 3).
        CombineRule(
            "union",
            "all drafts in one tree",
            "core.trees.combine.keep_all:union",
            keeps_all=True,
            meaning="the drafts of all drafters are merged into one tree",
            words=PictureWords(
                dropped="Dropped: the node budget was full",
                dropped_short="over the node budget",
                legend=" No vote: union merges all drafts into one tree.",
            ),
        ),
        # Minions (arXiv 2402.15678, 3.2). One draft is verified, so each draft may fill the budget.
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
            result="The best {kept} of {drafted} drafted nodes were kept, by weighted score.",
            result_all="All drafted nodes ({drafted}) were kept: this is the union.",
            words=_VOTE_TREE,
        ),
        # Not `ahead`: every SSM would have to guess the same outcomes.
        CombineRule(
            "log_pool",
            "SSMs choose together",
            "core.trees.combine.keep_all:log_pool",
            node_budget="pooled",
            weighted=True,
            ahead=False,
            meaning="the SSMs draft one tree together, choosing every token by a weighted mean",
            result=(
                "{ssms} drafted one tree of {nodes} together; ∏ is the weighted geometric mean of "
                "their scores."
            ),
            words=_LOG_POOL,
        ),
    ]
)
