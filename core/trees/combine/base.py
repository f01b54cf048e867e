"""What the combine rules share: all drafts as one trie, and what a rule selects from it.

A node keeps every proposal behind it: a token proposed twice is tried twice (ALGORITHMS 2, trap 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.trees.draft import Draft, chances_of
from core.trees.tree import ROOT, Proposal, TokenTree

__all__ = [
    "CombinedTree",
    "Combiner",
    "KeepNode",
    "MergedTree",
    "Selection",
    "VoteWeights",
    "log_pool",
    "merged",
    "select",
    "union",
]

KeepNode = Callable[[int, int, float], bool]
"""(drafter index, depth, chance by that drafter) -> whether the node is worth verifying."""


@dataclass(frozen=True, slots=True)
class VoteWeights:
    """What a rule may weigh with: a weight for each drafter index, nodes of a `vote_tree`."""

    weights: Mapping[int, float] = field(default_factory=dict)
    vote_nodes: int = 12


@dataclass(frozen=True, slots=True)
class MergedTree:
    """The trie of all drafts' paths (SpecInfer, Definition 3.2).

    `sources[node]`: (drafter index, node of its draft), one for each proposal; `chances[drafter]`:
    the products of scores of that drafter's nodes.
    """

    tree: TokenTree
    sources: tuple[tuple[tuple[int, int], ...], ...]
    chances: Mapping[int, tuple[float, ...]]

    def chance(self, node: int, drafter: int) -> float:
        """How probable a drafter holds the path to `node`; 0 if it did not propose it."""
        own = [self.chances[by][at] for by, at in self.sources[node] if by == drafter]
        return max(own, default=0.0)

    def drafters(self, node: int) -> tuple[int, ...]:
        """Who proposed `node`, each once, in order."""
        return tuple(dict.fromkeys(by for by, _ in self.sources[node]))


@dataclass(frozen=True, slots=True)
class Selection:
    """What a rule chose: `nodes` of the merged tree, in order and closed under ancestors.

    `masses`: the weight behind each merged node, empty where nothing is weighed. `winner`: the
    drafter whose sequence a vote chose.
    """

    nodes: tuple[int, ...]
    masses: tuple[float, ...] = ()
    winner: int | None = None


@dataclass(frozen=True, slots=True)
class CombinedTree:
    """The tree to verify. `dropped`: (drafter index, node of its draft) left out of it, with
    `dropped_masses` in parallel; `masses` as in Selection, for the tree's nodes."""

    tree: TokenTree
    dropped: tuple[tuple[int, int], ...] = ()
    masses: tuple[float, ...] = ()
    dropped_masses: tuple[float, ...] = ()
    winner: int | None = None


Combiner = Callable[[MergedTree, VoteWeights], Selection]


def merged(drafts: Mapping[int, Draft]) -> MergedTree:
    """The trie of drafts, given by drafter index in drafter order."""
    token_ids: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    proposals: list[list[Proposal]] = []
    sources: list[list[tuple[int, int]]] = []
    number: dict[tuple[int, int], int] = {}
    for drafter, draft in drafts.items():
        place = {ROOT: ROOT}
        for node, token_id in enumerate(draft.token_ids):
            parent = place[draft.parents[node]]
            key = (parent, token_id)
            if key not in number:
                number[key] = len(token_ids)
                token_ids.append(token_id)
                parents.append(parent)
                depths.append(1 if parent == ROOT else depths[parent] + 1)
                proposals.append([])
                sources.append([])
            place[node] = number[key]
            proposals[number[key]].append(_proposal(drafter, draft, node))
            sources[number[key]].append((drafter, node))
    tree = TokenTree(
        tuple(token_ids), tuple(parents), tuple(depths), tuple(tuple(p) for p in proposals)
    )
    chances = {drafter: chances_of(draft) for drafter, draft in drafts.items()}
    return MergedTree(tree, tuple(map(tuple, sources)), chances)


def _proposal(drafter: int, draft: Draft, node: int) -> Proposal:
    row = draft.rows[draft.parents[node]] if draft.q is not None else None
    return Proposal(drafter, draft.scores[node], draft.ranks[node], draft.qs[node], row)


def select(whole: MergedTree, selection: Selection, keep: KeepNode | None = None) -> CombinedTree:
    """The selected part of the trie, less what `keep` finds not worth verifying."""
    nodes = selection.nodes if keep is None else _worth(whole, selection.nodes, keep)
    masses = selection.masses
    kept = set(nodes)
    left = [node for node in range(len(whole.tree)) if node not in kept]
    dropped = [(source, node) for node in left for source in whole.sources[node]]
    tree = whole.tree if not left else _restricted(whole.tree, nodes)
    return CombinedTree(
        tree,
        tuple(source for source, _ in dropped),
        tuple(masses[node] for node in nodes) if masses else (),
        tuple(masses[node] for _, node in dropped) if masses else (),
        selection.winner,
    )


def _worth(whole: MergedTree, nodes: tuple[int, ...], keep: KeepNode) -> tuple[int, ...]:
    """Nodes that some proposer finds worth it, whose ancestors all are."""
    kept: set[int] = {ROOT}
    for node in nodes:
        depth = whole.tree.depths[node]
        by = whole.drafters(node)
        if whole.tree.parents[node] in kept and any(
            keep(drafter, depth, whole.chance(node, drafter)) for drafter in by
        ):
            kept.add(node)
    return tuple(node for node in nodes if node in kept)


def _restricted(tree: TokenTree, nodes: tuple[int, ...]) -> TokenTree:
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    return TokenTree(
        tuple(tree.token_ids[node] for node in nodes),
        tuple(number[tree.parents[node]] for node in nodes),
        tuple(tree.depths[node] for node in nodes),
        tuple(tree.proposals[node] for node in nodes),
    )


def union(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """Everything that was drafted; nothing is weighed or dropped."""
    return Selection(tuple(range(len(whole.tree))))


def log_pool(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """Everything; the drafters weighed in while they drafted one tree together.

    A node's mass is the weighted geometric mean of the chances that its drafters gave it
    (ALGORITHMS 3, `log_pool`): one that failed, or proposes chains of its own, is none of them.
    """
    masses = []
    for node in range(len(whole.tree)):
        weights = {drafter: ballot.weights[drafter] for drafter in whole.drafters(node)}
        total, mass = sum(weights.values()), 1.0
        for drafter, weight in weights.items():
            mass *= whole.chance(node, drafter) ** (weight / total)
        masses.append(mass)
    return Selection(tuple(range(len(whole.tree))), tuple(masses))
