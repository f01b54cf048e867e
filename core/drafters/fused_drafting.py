"""Fused drafts: confidence-based token fusion (CoSine): several SSMs draft one trunk in lock-step.

At each position every SSM proposes one token after each of its two live branches, its own chain and
the trunk, in one batched pass. The trunk goes on with the proposal of the highest calibrated score
(ties: drafter order), which every SSM is fed; what it did not choose stays as side leaves. Of all
nodes the most probable paths are kept, within the node budget and K (m + 1) for m SSMs and K steps.

A fused token was not drawn from one SSM's q, so only `greedy` and `match` are lossless. `weighted`
(ours): a score counts times the SSM's share of the highest weight, in the choice of the trunk and
of the nodes that are kept, so that an SSM that is sure and wrong gets neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from core.drafters.base import DraftRequest
from core.drafters.lockstep import Steps, run_all
from core.drafters.pooled_drafting import PooledRequest, fitting_requests
from core.drafters.proposers import Child, Frontier, proposer
from core.drafters.ssm import SsmDrafter
from core.errors import DrafterError
from core.events.parts import Timed
from core.trees.draft import Draft
from core.trees.sampling import penalize_repetition
from core.trees.tree import ROOT, path_of

__all__ = ["draft_fused"]


@dataclass
class _Trie:
    """All proposals as a trie. `values`: of each path, the product of the (weighted) scores with
    which its tokens were proposed; `origins`: the drafter index of the proposal that put the token
    there, on the trunk of the one that was fused. `trunk_scores`: of its tokens, not weighted."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    trunk: list[int] = field(default_factory=list)
    trunk_scores: list[float] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, parent: int, child: Child, origin: int, weight: float) -> int:
        """The node of a proposal, new or known."""
        value = child.score * weight * self.value(parent)
        key = (parent, child.token_id)
        if key not in self._children:
            self._children[key] = len(self.token_ids)
            self.token_ids.append(child.token_id)
            self.parents.append(parent)
            self.values.append(value)
            self.origins.append(origin)
        node = self._children[key]
        if value > self.values[node]:
            self.values[node], self.origins[node] = value, origin
        return node

    def value(self, node: int) -> float:
        """The value of the path to a node; 1 for the root."""
        return 1.0 if node == ROOT else self.values[node]

    def tokens_to(self, node: int) -> list[int]:
        """The tokens from the root to a node."""
        return [self.token_ids[above] for above in path_of(self.parents, node)]

    def best(self, count: int) -> list[int]:
        """The `count` nodes of the highest values. A child's value is at most its parent's, and
        its number higher, so the set is closed under ancestors."""
        nodes = sorted(range(len(self.token_ids)), key=lambda node: (-self.values[node], node))
        return sorted(nodes[:count])


@dataclass
class _FusedSsm:
    """One SSM. `weight`: at most 1. `own`: the tip of its chain, None once that has ended.
    `places`: the pending node of its model by node of the tree; `rows`: the row of its logits after
    each node it was fed."""

    drafter: SsmDrafter
    request: DraftRequest
    weight: float
    own: int | None = ROOT
    places: dict[int, int] = field(default_factory=lambda: {ROOT: ROOT})
    rows: dict[int, int] = field(default_factory=dict)
    proposed: set[int] = field(default_factory=set)
    logits: list[torch.Tensor] = field(default_factory=list)
    utilities: list[torch.Tensor] = field(default_factory=list)
    timings: list[Timed] = field(default_factory=list)

    def tips(self, trunk: int) -> list[int]:
        """The nodes after which it proposes: the trunk's tip, and that of its own chain."""
        return [trunk] if self.own in (None, trunk) else [trunk, self.own]

    def next_logits(self, tree: _Trie, tips: list[int]) -> Steps[torch.Tensor]:
        """Logits (tips, V) after the tips; after the root it first reads the committed text."""
        if tips == [ROOT]:
            (rows,) = yield from self.drafter.catch_up_steps([self.request])
            return rows
        token_ids = [tree.token_ids[node] for node in tips]
        parents = [self.places[tree.parents[node]] for node in tips]
        state = self.drafter.state(self.request)
        ((places, rows),) = yield from self.drafter.feeder.feed_nodes([(state, token_ids, parents)])
        self.places.update(zip(tips, places, strict=True))
        return rows

    def propose(
        self, tree: _Trie, tips: list[int], logits: torch.Tensor, depth: int
    ) -> list[tuple[int, float]]:
        """Adds its best token after each tip to the tree; the nodes with its own score of each,
        ROOT and 0 where it has none."""
        sequence = self.request.sequence
        sampling = sequence.sampling
        if sampling.penalizes:
            paths = [tree.tokens_to(tip) for tip in tips]
            penalty = sampling.repetition_penalty
            logits = penalize_repetition(logits, penalty, sequence.tokens, paths)
        position = self.request.root_position + depth
        calibration = self.drafter.calibration(sequence)
        frontier = Frontier(logits, position, (), sampling, sequence.noise, calibration)
        (children,) = proposer(self.request.kind, greedy=sampling.greedy)([frontier], [1])
        for tip in tips:
            self.rows[tip] = len(self.rows)
        self.logits.append(logits)
        if children.utilities is not None:
            self.utilities.append(children.utilities)
        proposals = [
            (tree.add(tip, family[0], self.request.index, self.weight), family[0].score)
            if family
            else (ROOT, 0.0)
            for tip, family in zip(tips, children.children, strict=True)
        ]
        self.proposed.update(node for node, _ in proposals if node != ROOT)
        return proposals

    def draft(self, tree: _Trie, node_ids: list[int]) -> Draft:
        """The trunk and its own proposals, with its own scores, of the nodes that are kept."""
        needed = self.proposed | {*tree.trunk}
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
            # A fused token has no q; rules that read q refuse these drafts.
            [1.0] * len(nodes),
            # Rank 0: its own proposals; the rest of the trunk it was only fed.
            [0 if node in self.proposed else 1 for node in nodes],
            {number[node]: row for node, row in self.rows.items() if node in number},
            logits,
            utilities,
            timings=tuple(self.timings),
            passes=len(self.logits),
            origins=tuple(tree.origins[node] for node in nodes),
        )


def draft_fused(
    ssms: Mapping[str, SsmDrafter], pool: PooledRequest, *, weighted: bool
) -> list[Draft]:
    """One draft per SSM: the trunk and its own side leaves. `ssms`: the loaded ones, by name.

    Raises DrafterError with the name of an SSM that fails; the others' states are restored.
    """
    fitting = fitting_requests(pool, ssms)
    highest = max((weight for _, weight in fitting), default=0.0) or 1.0
    members = [
        _FusedSsm(ssms[request.name], request, weight / highest if weighted else 1.0)
        for request, weight in fitting
    ]
    if not members:
        return [Draft() for _ in pool.requests]
    tree = _Trie()
    request = members[0].request
    try:
        for depth in range(1, len(request.shape) + 1):
            if depth > 1 and not _continues(tree, request, depth):
                break
            _extend(tree, members, depth)
    except DrafterError:
        # What was fed in this call is in every row, also of those that did not fail.
        for member in members:
            member.drafter.drop_pending(member.request)
        raise
    best = tree.best(min(request.budget, len(request.shape) * (len(members) + 1)))
    drafts = {member.request.index: member.draft(tree, best) for member in members}
    return [drafts.get(request.index, Draft()) for request in pool.requests]


def _continues(tree: _Trie, request: DraftRequest, depth: int) -> bool:
    """Whether the trunk has reached `depth` - 1, and the length policy allows another step."""
    if len(tree.trunk) < depth - 1 or tree.token_ids[tree.trunk[-1]] in request.sequence.eos_ids:
        return False
    # As in a chain (`Growth`): a token's own score says whether it has children, its path's
    # probability whether another pass is worth its time.
    grows = _grows(request, tree.trunk_scores[-1])
    return grows and request.continues(depth, [math.prod(tree.trunk_scores)])


def _grows(request: DraftRequest, score: float) -> bool:
    """Whether a token of this score may have children, by the length policy."""
    return request.stop is None or request.stop.grows(score)


def _extend(tree: _Trie, members: list[_FusedSsm], depth: int) -> None:
    """One pass: every SSM proposes after its tips, then the trunk takes the best proposal."""
    trunk = tree.trunk[-1] if tree.trunk else ROOT
    tips = {member.drafter.name: member.tips(trunk) for member in members}
    works = run_all(
        {
            m.drafter.name: (m.drafter.model, m.next_logits(tree, tips[m.drafter.name]))
            for m in members
        }
    )
    stage = "catch_up" if depth == 1 else "draft"
    best, best_score, highest, winner = ROOT, 0.0, 0.0, 0
    for member in members:
        name = member.drafter.name
        logits = works[name].take_result(name)
        member.timings.append(works[name].timing(name, stage))
        proposals = member.propose(tree, tips[name], logits, depth)
        fused, score = proposals[0]
        # Strictly: of equal ones the first in drafter order.
        if score * member.weight > highest:
            best, best_score, winner = fused, score, member.request.index
            highest = score * member.weight
        # Its own chain goes on from its own proposal, also where the trunk took another one.
        own, own_score = proposals[-1]
        ended = own == ROOT or tree.token_ids[own] in member.request.sequence.eos_ids
        ended = ended or not _grows(member.request, own_score)
        member.own = None if ended or member.own is None else own
    if best != ROOT:
        tree.trunk.append(best)
        tree.trunk_scores.append(best_score)
        # Another SSM may be surer of this very token, and still count for less.
        tree.origins[best] = winner
