"""Growth: builds one draft tree pass by pass, in layers (SpecInfer's expansion) or best first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch

from core.config.mechanisms import draft_kind
from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.proposers import Child, Frontier, Proposals, Proposer, proposer
from core.models.protocol import CACHED
from core.trees.draft import Draft
from core.trees.sampling import penalize_repetition
from core.trees.tree import ROOT, path_of

__all__ = [
    "Growth",
    "absorb_all",
    "absorb_penalized",
    "best_nodes",
    "new_growth",
    "restrict",
    "same_tree",
]


class Growth(ABC):
    """A draft tree under construction.

    `frontier`: nodes whose logits are needed next, at first ROOT; empty when done. `out`: the nodes
    so far. `places`: each fed node's index among the sequence's fed, uncommitted nodes. ROOT's
    place is CACHED, or, with an uncommitted `prefix`, the index of the prefix's last token.
    `prefix`: see `new_growth`.
    """

    def __init__(
        self, request: DraftRequest, calibration: Calibration, prefix: tuple[int, ...] = ()
    ) -> None:
        self.request = request
        self.prefix = prefix
        self.calibration = calibration
        self.out = Draft()
        self.frontier = [ROOT]
        self.places = {ROOT: CACHED}
        # Nodes of the level that was added last.
        self.new_nodes: list[int] = []
        self.depth_of = {ROOT: 0}
        # Cumulative score: the product of scores from the root down.
        self.cumulative_scores = {ROOT: 1.0}
        # Each node's ranks from the root down: a part of its noise key.
        self._paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        self.propose = proposer(request.kind, greedy=request.sequence.sampling.greedy)
        self._logits: list[torch.Tensor] = []
        self._utilities: list[torch.Tensor] = []
        self._q: list[torch.Tensor] = []
        self._num_rows = 0

    @property
    def passes(self) -> int:
        """Passes whose logits were absorbed."""
        return len(self._logits)

    @property
    @abstractmethod
    def width(self) -> int:
        """The most children of a frontier node."""

    @abstractmethod
    def draft(self) -> Draft:
        """The draft so far, within the request's limits."""

    @abstractmethod
    def _next(self) -> list[int]:
        """The frontier after the level that was added last."""

    def absorb(self, logits: torch.Tensor) -> None:
        """Adds children by the frontier's logits (n, V) and sets the next frontier."""
        absorb_all([self], [logits])

    def penalize(self, logits: torch.Tensor) -> torch.Tensor:
        """The frontier's logits (n, V) with the request's repetition penalty."""
        sequence = self.request.sequence
        if not sequence.sampling.penalizes:
            return logits
        token_ids, parents = self.out.token_ids, self.out.parents
        paths = [
            (*self.prefix, *(token_ids[above] for above in path_of(parents, node)))
            for node in self.frontier
        ]
        penalty = sequence.sampling.repetition_penalty
        return penalize_repetition(logits, penalty, sequence.tokens, paths)

    def proposer_input(self, logits: torch.Tensor) -> Frontier:
        """The proposer's input for the frontier's logits (n, V) after `penalize`."""
        sequence, root = self.request.sequence, self.request.root_position
        # The keys of random draws include the drafter: the verification rules `mss` and `traversal`
        # need drafters to draw independently.
        keys = [("draft", root, self.request.index, self._paths[node]) for node in self.frontier]
        # All nodes of the frontier have the same depth.
        position = root + self.depth_of[self.frontier[0]] + 1
        return Frontier(logits, position, keys, sequence.sampling, sequence.noise, self.calibration)

    def adopt(self, request: DraftRequest) -> bool:
        """Continues for another request. Returns False, with nothing changed, if the tree so far
        does not suit that request (`same_tree`)."""
        if not same_tree(self.request, request, self.passes):
            return False
        self.request = request
        # The new request may allow another depth or budget.
        self.frontier = self._next()
        return True

    def add_level(self, logits: torch.Tensor, proposals: Proposals) -> None:
        """Adds the frontier's children as nodes and sets the next frontier. `logits` (n, V): of
        the frontier, after `penalize`."""
        for i, node in enumerate(self.frontier):
            self.out.rows[node] = self._num_rows + i
        self._num_rows += len(self.frontier)
        self._logits.append(logits)
        if proposals.utilities is not None:
            self._utilities.append(proposals.utilities)
        if proposals.q is not None:
            self._q.append(proposals.q)
        self.new_nodes = [
            self._add(parent, rank, child)
            for parent, children in zip(self.frontier, proposals.children, strict=True)
            for rank, child in enumerate(children)
        ]
        self.frontier = self._next()

    def _add(self, parent: int, rank: int, child: Child) -> int:
        node = len(self.out)
        self.out.token_ids.append(child.token_id)
        self.out.parents.append(parent)
        self.out.scores.append(child.score)
        self.out.qs.append(child.q)
        self.out.ranks.append(rank)
        self.depth_of[node] = self.depth_of[parent] + 1
        self.cumulative_scores[node] = self.cumulative_scores[parent] * child.score
        self._paths[node] = (*self._paths[parent], rank)
        return node

    def grows(self, node: int) -> bool:
        """Whether a node may have children."""
        if self.out.token_ids[node] in self.request.sequence.eos_ids:
            return False
        return self.request.grows(self.out.scores[node])

    def worth_feeding(self, nodes: list[int]) -> list[int]:
        """`nodes` if the length policy allows a pass for their children, else none. `nodes` have
        the same depth."""
        if not nodes:
            return nodes
        # Only tokens already drawn decide: otherwise the verification rules `mss` and `traversal`
        # would not be lossless.
        scores = [self.cumulative_scores[node] for node in nodes]
        return nodes if self.request.continues(self.depth_of[nodes[0]] + 1, scores) else []

    def whole_draft(self) -> Draft:
        """All nodes so far, including the nodes that `draft` leaves out."""
        out = self.out
        return Draft(
            out.token_ids,
            out.parents,
            out.scores,
            out.qs,
            out.ranks,
            out.rows,
            torch.cat(self._logits) if self._logits else None,
            torch.cat(self._utilities) if self._utilities else None,
            torch.cat(self._q) if self._q else None,
        )


class Layered(Growth):
    """Expansion <k1,...,km>: in pass i every frontier node gets up to k_i children (SpecInfer
    3.1)."""

    @property
    def width(self) -> int:
        return self.request.shape[self.passes]

    def _next(self) -> list[int]:
        last = self.passes >= len(self.request.shape)
        return self.worth_feeding([] if last else [n for n in self.new_nodes if self.grows(n)])

    def draft(self) -> Draft:
        whole = self.whole_draft()
        depth = len(self.request.shape)
        if self.passes <= depth:
            return whole
        # The growth was begun for a deeper shape.
        return restrict(whole, [n for n in range(len(whole)) if self.depth_of[n] <= depth])


class BestFirst(Growth):
    """Best first by cumulative calibrated score, under a node budget and a depth bound (after
    EAGLE-2, arXiv 2406.16858).

    Each pass expands the best leaves of one depth; `draft` has the `budget` best nodes of all
    depths.
    """

    @property
    def width(self) -> int:
        return _best_first_width(self.request)

    def _next(self) -> list[int]:
        new_nodes = self.new_nodes
        if not new_nodes or self.depth_of[new_nodes[0]] >= len(self.request.shape):
            return []
        # A child of a node outside the budget would be outside the budget too.
        in_budget = set(self._nodes_in_budget())
        expandable = [node for node in new_nodes if node in in_budget and self.grows(node)]
        expandable.sort(key=lambda node: -self.cumulative_scores[node])
        return self.worth_feeding(expandable[: self.width])

    def _nodes_in_budget(self) -> list[int]:
        depth = len(self.request.shape)
        nodes = [node for node in range(len(self.out)) if self.depth_of[node] <= depth]
        return best_nodes(nodes, self.cumulative_scores, self.request.budget)

    def draft(self) -> Draft:
        return restrict(self.whole_draft(), self._nodes_in_budget())


def new_growth(
    request: DraftRequest, calibration: Calibration, prefix: tuple[int, ...] = ()
) -> Growth:
    """The growth for a request's draft kind. `prefix`: uncommitted tokens that the draft assumes;
    the last of these tokens is the draft's root."""
    kind = BestFirst if draft_kind(request.kind).by_score else Layered
    return kind(request, calibration, prefix)


def same_tree(made_for: DraftRequest, request: DraftRequest, levels: int) -> bool:
    """Whether a tree of `levels` levels that was grown for `made_for` can be continued or cut for
    `request`. The requests must agree in kind, and in the widths of these levels or, by score, in
    the greatest width. Depth and budget may differ."""
    if request.kind != made_for.kind:
        return False
    if draft_kind(request.kind).by_score:
        return _best_first_width(request) == _best_first_width(made_for)
    steps = min(levels, len(request.shape))
    return request.shape[:steps] == made_for.shape[:steps]


def _best_first_width(request: DraftRequest) -> int:
    # With one child per node the tree would be a chain.
    return max(2, *request.shape)


def absorb_all(growths: Sequence[Growth], logits: Sequence[torch.Tensor]) -> None:
    """`absorb` for several growths. Growths with the same proposer choose children in one call."""
    pairs = zip(growths, logits, strict=True)
    absorb_penalized(growths, [growth.penalize(rows) for growth, rows in pairs])


def absorb_penalized(growths: Sequence[Growth], logits: Sequence[torch.Tensor]) -> None:
    """`absorb_all` for logits after `penalize`."""
    by_proposer: dict[Proposer, list[int]] = {}
    for i, growth in enumerate(growths):
        by_proposer.setdefault(growth.propose, []).append(i)
    for propose, indices in by_proposer.items():
        frontiers = [growths[i].proposer_input(logits[i]) for i in indices]
        all_proposals = propose(frontiers, [growths[i].width for i in indices])
        for i, frontier, proposals in zip(indices, frontiers, all_proposals, strict=True):
            growths[i].add_level(frontier.logits, proposals)


def best_nodes(
    nodes: list[int], scores: Mapping[int, float] | Sequence[float], budget: int
) -> list[int]:
    """The `budget` nodes of the highest cumulative score, in ascending order."""
    # The node's number breaks ties: a parent comes before a child of equal score.
    return sorted(sorted(nodes, key=lambda node: (-scores[node], node))[:budget])


def restrict(draft: Draft, node_ids: list[int]) -> Draft:
    """The draft's tree with only `node_ids`, which are ascending and closed under ancestors."""
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(node_ids)}
    return Draft(
        [draft.token_ids[node] for node in node_ids],
        [number[draft.parents[node]] for node in node_ids],
        [draft.scores[node] for node in node_ids],
        [draft.qs[node] for node in node_ids],
        [draft.ranks[node] for node in node_ids],
        {number[node]: row for node, row in draft.rows.items() if node in number},
        draft.logits,
        draft.utilities,
        draft.q,
    )
