"""FusedTree: the tree of a fused draft. FusedSsm: one SSM's part of the draft."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from core.drafters.base import DraftRequest
from core.drafters.proposers import Child, Frontier, Proposals
from core.drafters.ssm import SsmDrafter
from core.drafters.ssm_state import SsmState
from core.events.parts import Timed
from core.models.protocol import CACHED
from core.trees.draft import Draft
from core.trees.sampling import penalize_repetition
from core.trees.tree import ROOT, path_of

__all__ = ["FusedSsm", "FusedTree"]


@dataclass
class FusedTree:
    """All proposals as a trie. `values`: by node, the highest product of score x weight along the
    path. `origins`: by node, the drafter index of the SSM whose proposal counts. `trunk`: the nodes
    of the common chain. `trunk_scores`: without weights."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    trunk: list[int] = field(default_factory=list)
    trunk_scores: list[float] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, parent: int, child: Child, origin: int, weight: float) -> int:
        """Adds a proposal. Returns its node, which may exist already."""
        value = child.score * weight * self.value(parent)
        key = (parent, child.token_id)
        if key not in self._children:
            self._children[key] = len(self.token_ids)
            self.token_ids.append(child.token_id)
            self.parents.append(parent)
            self.values.append(value)
            self.origins.append(origin)
        node = self._children[key]
        # Strictly greater: of equal proposals the first counts.
        if value > self.values[node]:
            self.values[node], self.origins[node] = value, origin
        return node

    def value(self, node: int) -> float:
        """A node's value; 1 for the root."""
        return 1.0 if node == ROOT else self.values[node]

    def tokens_to(self, node: int) -> list[int]:
        """The tokens after the root, down to a node."""
        return [self.token_ids[above] for above in path_of(self.parents, node)]

    def best(self, count: int) -> list[int]:
        """The `count` nodes of the highest values, in the order of their numbers. Includes all
        ancestors: a child's value is at most its parent's, and a child's number is higher."""
        nodes = sorted(range(len(self.token_ids)), key=lambda node: (-self.values[node], node))
        return sorted(nodes[:count])


@dataclass
class FusedSsm:
    """One SSM's part of one request. `tree`: shared by all SSMs of the request. `weight`: at most
    1. `own`: the tip of the SSM's own chain, None once the chain has ended. `places`: by node, the
    index among the model's uncommitted nodes. `rows`: by node, the row of `logits` after the node.
    `own_nodes`: the nodes that the SSM proposed.

    In the current step, `tips`: the nodes after which the SSM proposes; `proposed`: for each tip,
    the proposed node and the score, or (ROOT, 0) without a proposal.
    """

    drafter: SsmDrafter
    request: DraftRequest
    tree: FusedTree
    weight: float
    own: int | None = ROOT
    places: dict[int, int] = field(default_factory=lambda: {ROOT: CACHED})
    rows: dict[int, int] = field(default_factory=dict)
    logits: list[torch.Tensor] = field(default_factory=list)
    utilities: list[torch.Tensor] = field(default_factory=list)
    timings: list[Timed] = field(default_factory=list)
    own_nodes: set[int] = field(default_factory=set)
    tips: list[int] = field(default_factory=list)
    frontier: Frontier | None = None
    proposed: list[tuple[int, float]] = field(default_factory=list)

    @property
    def node_feed(self) -> tuple[SsmState, list[int], list[int]]:
        """The input of `ssm_state.Feeder.feed_nodes` for the tips."""
        token_ids = [self.tree.token_ids[tip] for tip in self.tips]
        parents = [self.places[self.tree.parents[tip]] for tip in self.tips]
        return self.drafter.state(self.request), token_ids, parents

    def make_frontier(self, logits: torch.Tensor) -> Frontier:
        """The proposer's input for the logits (tips, V)."""
        sequence = self.request.sequence
        sampling = sequence.sampling
        if sampling.penalizes:
            paths = [self.tree.tokens_to(tip) for tip in self.tips]
            penalty = sampling.repetition_penalty
            logits = penalize_repetition(logits, penalty, sequence.tokens, paths)
        # The trunk and the SSM's own chain are equally long: children of both tips are at this
        # position.
        position = self.request.root_position + len(self.tree.trunk) + 1
        calibration = self.drafter.calibration(sequence)
        return Frontier(logits, position, (), sampling, sequence.noise, calibration)

    def propose(self, proposals: Proposals) -> None:
        """Adds the SSM's best token after each tip to the tree."""
        assert self.frontier is not None
        # `rows`: indices into the concatenation of `logits`.
        for tip in self.tips:
            self.rows[tip] = len(self.rows)
        self.logits.append(self.frontier.logits)
        if proposals.utilities is not None:
            self.utilities.append(proposals.utilities)
        add, index = self.tree.add, self.request.index
        self.proposed = [
            (add(tip, family[0], index, self.weight), family[0].score) if family else (ROOT, 0.0)
            for tip, family in zip(self.tips, proposals.children, strict=True)
        ]
        self.own_nodes.update(node for node, _ in self.proposed if node != ROOT)

    def draft(self, node_ids: list[int]) -> Draft:
        """The SSM's draft, with the SSM's own scores. `node_ids`: the nodes kept of the tree."""
        tree = self.tree
        # A draft has all ancestors of its nodes: the trunk is included.
        needed = self.own_nodes | {*tree.trunk}
        nodes = [node for node in node_ids if node in needed]
        number = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
        logits = torch.cat(self.logits)
        utilities = torch.cat(self.utilities) if self.utilities else None
        calibration = self.drafter.calibration(self.request.sequence)
        scores = calibration.scores(logits if utilities is None else utilities)
        token_ids = [tree.token_ids[node] for node in nodes]
        rows = [self.rows[tree.parents[node]] for node in nodes]
        return Draft(
            token_ids,
            [number[tree.parents[node]] for node in nodes],
            scores[rows, token_ids].tolist() if nodes else [],
            # A fused token has no q.
            [1.0] * len(nodes),
            # 1: a trunk token that the SSM did not propose.
            [0 if node in self.own_nodes else 1 for node in nodes],
            {number[node]: row for node, row in self.rows.items() if node in number},
            logits,
            utilities,
            timings=tuple(self.timings),
            passes=len(self.logits),
            origins=tuple(tree.origins[node] for node in nodes),
        )
