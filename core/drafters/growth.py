"""How one draft grows, pass by pass: in layers (SpecInfer's expansion) or best first.

A growth is fed the logits of the nodes it last asked for and tells which nodes it wants next. Knows
no model: `SsmDrafter` drives the growths of many sequences in lock-step.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

import torch

from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.proposers import Frontier, Proposals, Proposer, proposer
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["Growth", "absorbed", "growth"]


class Growth(Protocol):
    """`frontier`: nodes whose logits are wanted next, ROOT first of all; empty when done.

    `out`: the tree so far. `places`: where the drafter's model has the nodes it was fed.
    """

    frontier: list[int]
    out: Draft
    places: dict[int, int]

    @property
    def passes(self) -> int:
        """How many it has absorbed; each is a level of the tree."""
        ...

    def absorb(self, logits: torch.Tensor) -> None:
        """Takes the frontier's logits (n, V) and moves the frontier on."""
        ...

    @property
    def proposer(self) -> Proposer:
        """Who chooses children."""
        ...

    @property
    def width(self) -> int:
        """How many children each node of the frontier may get."""
        ...

    def frontier_by(self, logits: torch.Tensor) -> Frontier:
        """What they are chosen by, with the frontier's logits (n, V)."""
        ...

    def take(self, logits: torch.Tensor, proposals: Proposals) -> None:
        """`absorb`, with what was chosen by these logits."""
        ...

    def adopt(self, ask: DraftRequest) -> bool:
        """Goes on for `ask` from where it stands, as if it had grown for it from the start; False,
        and nothing changed, where that cannot be."""
        ...

    def draft(self) -> Draft:
        """The finished draft."""
        ...


class _Tree:
    """What both growths share: the nodes so far and the rows their children came from."""

    def __init__(self, ask: DraftRequest, calibration: Calibration) -> None:
        self.ask = ask
        self.calibration = calibration
        self.out = Draft()
        self.frontier = [ROOT]
        self.places = {ROOT: ROOT}
        self.born: list[int] = []
        self.depth_of = {ROOT: 0}
        self.value = {ROOT: 1.0}
        self._paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        self.proposer = proposer(ask.kind, greedy=ask.sequence.sampling.greedy)
        self._logits: list[torch.Tensor] = []
        self._utilities: list[torch.Tensor] = []
        self._q: list[torch.Tensor] = []
        self._num_rows = 0

    @property
    def passes(self) -> int:
        """See Growth."""
        return len(self._logits)

    def frontier_by(self, logits: torch.Tensor) -> Frontier:
        """See Growth; all nodes of a frontier have one depth."""
        sequence, root = self.ask.sequence, self.ask.root_position
        keys = [("draft", root, self.ask.index, self._paths[node]) for node in self.frontier]
        position = root + self.depth_of[self.frontier[0]] + 1
        return Frontier(logits, position, keys, sequence.sampling, sequence.noise, self.calibration)

    def grow(self, logits: torch.Tensor, proposals: Proposals) -> None:
        """The frontier's children become nodes."""
        for i, node in enumerate(self.frontier):
            self.out.rows[node] = self._num_rows + i
        self._num_rows += len(self.frontier)
        self._logits.append(logits)
        if proposals.utilities is not None:
            self._utilities.append(proposals.utilities)
        if proposals.q is not None:
            self._q.append(proposals.q)
        self.born = [
            self.add(parent, rank, child.token_id, child.score, child.q)
            for parent, family in zip(self.frontier, proposals.children, strict=True)
            for rank, child in enumerate(family)
        ]

    def add(self, parent: int, rank: int, token_id: int, score: float, q: float) -> int:
        """A new node; returns its number."""
        node = len(self.out)
        self.out.token_ids.append(token_id)
        self.out.parents.append(parent)
        self.out.scores.append(score)
        self.out.qs.append(q)
        self.out.ranks.append(rank)
        self.depth_of[node] = self.depth_of[parent] + 1
        self.value[node] = self.value[parent] * score
        self._paths[node] = (*self._paths[parent], rank)
        return node

    def grows(self, node: int) -> bool:
        """An end-of-text node has no children, nor has one that the length policy stops at."""
        if self.out.token_ids[node] in self.ask.sequence.eos_ids:
            return False
        return self.ask.stop is None or self.ask.stop.grows(self.out.scores[node])

    def worth_feeding(self, nodes: list[int]) -> list[int]:
        """`nodes`, all of one depth, if another pass to get their children is worth it."""
        if not nodes:
            return nodes
        chances = [self.value[node] for node in nodes]
        return nodes if self.ask.steps(self.depth_of[nodes[0]] + 1, chances) else []

    def finished(self) -> Draft:
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


class Layered(_Tree):
    """Expansion <k1,...,km>: at step i every frontier node gets k_i children (SpecInfer 3.1)."""

    def __init__(self, ask: DraftRequest, calibration: Calibration) -> None:
        super().__init__(ask, calibration)
        self._step = 0

    @property
    def width(self) -> int:
        return self.ask.shape[self._step]

    def absorb(self, logits: torch.Tensor) -> None:
        absorbed([self], [logits])

    def take(self, logits: torch.Tensor, proposals: Proposals) -> None:
        self.grow(logits, proposals)
        self._step += 1
        self.frontier = self._next()

    def _next(self) -> list[int]:
        last = self._step >= len(self.ask.shape)
        return self.worth_feeding([] if last else [n for n in self.born if self.grows(n)])

    def adopt(self, ask: DraftRequest) -> bool:
        grown = min(self._step, len(ask.shape))
        if ask.kind != self.ask.kind or ask.shape[:grown] != self.ask.shape[:grown]:
            return False
        self.ask = ask
        self.frontier = self._next()
        return True

    def draft(self) -> Draft:
        whole = self.finished()
        depth = len(self.ask.shape)
        if self._step <= depth:
            return whole
        return _restricted(whole, [n for n in range(len(whole)) if self.depth_of[n] <= depth])


class BestFirst(_Tree):
    """Grows by cumulative calibrated score under a node budget and a depth bound (ALGORITHMS 1).

    Pass by pass the best leaves of one depth are expanded; at the end the `budget` best nodes are
    kept. A child's cumulative score is at most its parent's, so the kept set is closed.
    """

    def __init__(self, ask: DraftRequest, calibration: Calibration) -> None:
        super().__init__(ask, calibration)
        self.width = max(2, *ask.shape)

    def absorb(self, logits: torch.Tensor) -> None:
        absorbed([self], [logits])

    def take(self, logits: torch.Tensor, proposals: Proposals) -> None:
        self.grow(logits, proposals)
        self.frontier = self._next()

    def _next(self) -> list[int]:
        born = self.born
        if not born or self.depth_of[born[0]] >= len(self.ask.shape):
            return []
        kept = set(self._kept())
        # Children of a node that is not kept could not be kept either.
        worth = [node for node in born if node in kept and self.grows(node)]
        worth.sort(key=lambda node: -self.value[node])
        return self.worth_feeding(worth[: self.width])

    def adopt(self, ask: DraftRequest) -> bool:
        if ask.kind != self.ask.kind or max(2, *ask.shape) != self.width:
            return False
        self.ask = ask
        self.frontier = self._next()
        return True

    def _kept(self) -> list[int]:
        depth = len(self.ask.shape)
        nodes = [node for node in range(len(self.out)) if self.depth_of[node] <= depth]
        nodes.sort(key=lambda node: (-self.value[node], node))
        return sorted(nodes[: self.ask.budget])

    def draft(self) -> Draft:
        return _restricted(self.finished(), self._kept())


def growth(ask: DraftRequest, calibration: Calibration) -> Growth:
    """The growth of an ask's draft kind."""
    return BestFirst(ask, calibration) if ask.kind == "best_first" else Layered(ask, calibration)


def absorbed(growths: Many[Growth], logits: Many[torch.Tensor]) -> None:
    """Each growth takes its own logits; all that choose in one way do so at one look."""
    kinds: dict[type[Proposer], list[int]] = {}
    for i, grown in enumerate(growths):
        kinds.setdefault(type(grown.proposer), []).append(i)
    for alike in kinds.values():
        frontiers = [growths[i].frontier_by(logits[i]) for i in alike]
        chosen = growths[alike[0]].proposer.propose(frontiers, [growths[i].width for i in alike])
        for i, proposals in zip(alike, chosen, strict=True):
            growths[i].take(logits[i], proposals)


def _restricted(draft: Draft, kept: list[int]) -> Draft:
    number = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
    return Draft(
        [draft.token_ids[node] for node in kept],
        [number[draft.parents[node]] for node in kept],
        [draft.scores[node] for node in kept],
        [draft.qs[node] for node in kept],
        [draft.ranks[node] for node in kept],
        {number[node]: row for node, row in draft.rows.items() if node in number},
        draft.logits,
        draft.utilities,
        draft.q,
    )
