"""Merges all drafts into one trie and applies a rule's choice.

A node keeps all of its proposals. The q of a lost proposal would be missing in the residual of
`mss` and `traversal`: the text would not have the LLM's distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.trees.draft import Draft, cumulative_scores
from core.trees.tree import ROOT, Proposal, TokenTree, depths_of

__all__ = [
    "CombinedTree",
    "Combiner",
    "KeepNode",
    "MergedTree",
    "Selection",
    "VoteWeights",
    "merge_drafts",
    "node_chances",
    "select",
]

KeepNode = Callable[[float], bool]
"""A drafter's cumulative score of a node -> whether the node is worth verifying."""


@dataclass(frozen=True, slots=True)
class VoteWeights:
    """`weights`: by drafter index; `vote_nodes`: the most nodes that `vote_tree` keeps."""

    weights: Mapping[int, float] = field(default_factory=dict)
    vote_nodes: int = 12


@dataclass(frozen=True, slots=True)
class MergedTree:
    """The trie of all drafts' paths (SpecInfer, Definition 3.2).

    `sources[node]`: a pair (drafter index, node of this drafter's draft) for each of the node's
    proposals. `cumulative_scores[drafter]`: the cumulative score of each node of this drafter's
    draft.
    """

    tree: TokenTree
    sources: tuple[tuple[tuple[int, int], ...], ...]
    cumulative_scores: Mapping[int, tuple[float, ...]]

    def cumulative_score(self, node: int, drafter: int) -> float:
        """A drafter's highest cumulative score of `node`; 0 if the drafter did not propose the
        node."""
        # A drafter that draws with replacement may have proposed the same node several times.
        scores = [self.cumulative_scores[by][i] for by, i in self.sources[node] if by == drafter]
        return max(scores, default=0.0)

    def drafters(self, node: int) -> tuple[int, ...]:
        """Indices of the drafters that proposed `node`, each once."""
        return tuple(dict.fromkeys(by for by, _ in self.sources[node]))


@dataclass(frozen=True, slots=True)
class Selection:
    """A rule's choice: `nodes` of the merged tree, ascending and closed under ancestors.

    `node_weights`: by merged node, empty for rules without weights. `winner`: index of the drafter
    whose sequence `vote` chose.
    """

    nodes: tuple[int, ...]
    node_weights: tuple[float, ...] = ()
    winner: int | None = None


@dataclass(frozen=True, slots=True)
class CombinedTree:
    """The tree to verify. `node_weights`: by node of the tree. `dropped`: (drafter index, node of
    this drafter's draft) of each proposal outside the tree; `dropped_node_weights`: in the same
    order. Both weights are empty for rules without weights."""

    tree: TokenTree
    dropped: tuple[tuple[int, int], ...] = ()
    node_weights: tuple[float, ...] = ()
    dropped_node_weights: tuple[float, ...] = ()
    winner: int | None = None


Combiner = Callable[[MergedTree, VoteWeights], Selection]
"""A combine rule: chooses the nodes to verify."""


def merge_drafts(drafts: Mapping[int, Draft]) -> MergedTree:
    """The trie of all drafts. `drafts`: by drafter index; their order is the order of a node's
    proposals."""
    token_ids: list[int] = []
    parents: list[int] = []
    proposals: list[list[Proposal]] = []
    sources: list[list[tuple[int, int]]] = []
    # (parent, token) -> node of the trie.
    children: dict[tuple[int, int], int] = {}
    for drafter, draft in drafts.items():
        # Node of the draft -> node of the trie.
        trie_node = {ROOT: ROOT}
        for node, token_id in enumerate(draft.token_ids):
            parent = trie_node[draft.parents[node]]
            child = children.setdefault((parent, token_id), len(token_ids))
            if child == len(token_ids):
                token_ids.append(token_id)
                parents.append(parent)
                proposals.append([])
                sources.append([])
            trie_node[node] = child
            # Proposals are never merged, not even two draws of one drafter.
            proposals[child].append(_proposal(drafter, draft, node))
            sources[child].append((drafter, node))
    tree = TokenTree(
        tuple(token_ids), tuple(parents), depths_of(parents), tuple(map(tuple, proposals))
    )
    scores = {drafter: cumulative_scores(draft) for drafter, draft in drafts.items()}
    return MergedTree(tree, tuple(map(tuple, sources)), scores)


def _proposal(drafter: int, draft: Draft, node: int) -> Proposal:
    # The row that the node was drawn from.
    row = draft.rows[draft.parents[node]] if draft.q is not None else None
    return Proposal(drafter, draft.scores[node], draft.ranks[node], draft.qs[node], row)


def node_chances(trie: MergedTree, nodes: Sequence[int]) -> list[float]:
    """For each of `nodes`, an estimate of the probability that the node is accepted: the product,
    along its path, of each node's highest score. The estimate never rises from parent to child."""
    chances: dict[int, float] = {ROOT: 1.0}
    tree = trie.tree
    for node in range(len(tree)):
        score = max(proposal.score for proposal in tree.proposals[node])
        # Clamped: a child that is likelier than its parent could be kept without the parent.
        chances[node] = chances[tree.parents[node]] * min(1.0, max(0.0, score))
    return [chances[node] for node in nodes]


def select(trie: MergedTree, selection: Selection, keep: KeepNode | None = None) -> CombinedTree:
    """The selected part of the trie. A node is left out, with its descendants, if `keep` rejects it
    for all of its drafters."""
    nodes = selection.nodes if keep is None else _worth_verifying(trie, selection.nodes, keep)
    node_weights = selection.node_weights
    selected = set(nodes)
    left_out = [node for node in range(len(trie.tree)) if node not in selected]
    dropped = [(source, node) for node in left_out for source in trie.sources[node]]
    tree = trie.tree if not left_out else _subtree(trie.tree, nodes)
    return CombinedTree(
        tree,
        tuple(source for source, _ in dropped),
        tuple(node_weights[node] for node in nodes) if node_weights else (),
        tuple(node_weights[node] for _, node in dropped) if node_weights else (),
        selection.winner,
    )


def _worth_verifying(trie: MergedTree, nodes: tuple[int, ...], keep: KeepNode) -> tuple[int, ...]:
    """The nodes that `keep` accepts for at least one drafter, if it accepts all of their ancestors
    too."""
    selected: set[int] = {ROOT}
    for node in nodes:
        if trie.tree.parents[node] in selected and any(
            keep(trie.cumulative_score(node, drafter)) for drafter in trie.drafters(node)
        ):
            selected.add(node)
    return tuple(node for node in nodes if node in selected)


def _subtree(tree: TokenTree, nodes: tuple[int, ...]) -> TokenTree:
    # `nodes` are closed under ancestors: every parent has a new number.
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    return TokenTree(
        tuple(tree.token_ids[node] for node in nodes),
        tuple(number[tree.parents[node]] for node in nodes),
        tuple(tree.depths[node] for node in nodes),
        tuple(tree.proposals[node] for node in nodes),
    )
