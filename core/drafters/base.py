"""The Drafter protocol: asks in, drafts out; plain values and the drafter's own tensors.

A drafter serves many sequences: it keeps what it needs for each between `open` and `close`. It
never sees the engine, the LLM or the other drafters.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

import torch

from core.events.parts import Timed
from core.length.base import Stop
from core.sequence import Sequence
from core.trees.draft import Draft
from core.trees.tree import ROOT, TokenTree

__all__ = ["DraftRequest", "Drafter", "Drafts", "Outcome", "likeliest"]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One sequence's turn to draft. `index` is the drafter's place in the run's fixed order.

    `shape` <k1,...,km>: children per frontier node at each step, already cut to `budget` nodes; its
    length bounds the depth. `kind` is a draft kind of `core.config.DRAFTS`. `stop`, asked by the
    drafter's `name`, may end the draft earlier (None: nothing does). `beyond`: how many tokens
    behind the text the draft begins (drafting ahead).
    """

    sequence: Sequence
    index: int
    kind: str
    shape: tuple[int, ...]
    budget: int
    name: str = ""
    stop: Stop | None = None
    beyond: int = 0

    @property
    def root_position(self) -> int:
        """Position of the token that the draft hangs under."""
        return self.sequence.root_position + self.beyond

    @property
    def worth_starting(self) -> bool:
        """Whether there is a step to take, and the length policy wants it taken."""
        return bool(self.shape) and self.steps(1, [1.0])

    def steps(self, depth: int, chances: Many[float]) -> bool:
        """See `core.length.Stop.steps`."""
        return self.stop is None or self.stop.steps(self.name, depth, chances)


Drafts = list[Draft] | BaseException
"""A drafter's answer, one draft an ask, or how it failed."""


class Drafter(Protocol):
    """Proposes tokens. `name` is unique among a run's drafters."""

    @property
    def name(self) -> str: ...

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        """Takes up a sequence and reads its tokens but the last; returns the time it took."""
        ...

    def draft(self, asks: Many[DraftRequest]) -> list[Draft]:
        """One draft an ask, in lock-step. A draft may be empty; it stays valid until `commit`."""
        ...

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        """Learns what was committed after `draft` (None: it was not asked); keeps what it can."""
        ...

    def close(self, sequence: Sequence) -> None:
        """Forgets the sequence; unknown ones are ignored."""
        ...

    def temperature(self, sequence: Sequence) -> float:
        """The calibration temperature of its scores; 1 where there is none."""
        ...

    def likelihoods(self, sequence: Sequence) -> list[float]:
        """The unprocessed, uncalibrated probabilities it gave to tokens of the text, in their
        order, since it was last asked; NaN where it had nothing to say. Kept only for runs whose
        weights need them (`core.drafters.weights`)."""
        ...


LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """`token_ids`: what would be committed; the last is the LLM's own token."""

    token_ids: tuple[int, ...]
    probability: float


def likeliest(
    tree: TokenTree, scores: torch.Tensor, count: int, ends: Collection[int] = ()
) -> list[Outcome]:
    """The `count` likeliest outcomes, the likeliest first, each at least 1 % probable.

    `scores` (1 + nodes, V): how probable the LLM's choice of each token is after the root and after
    each node. P(path to u) x P(y after u), y no child of u, since a child would have been accepted
    (ALGORITHMS 5). Outcomes with a token of `ends` are left out: no round follows them.
    """
    joint = scores.clone()
    parents = torch.tensor(tree.parents, dtype=torch.long, device=scores.device) + 1
    token_ids = torch.tensor(tree.token_ids, dtype=torch.long, device=scores.device)
    steps = scores[parents, token_ids].tolist()
    reached = [1.0]
    for token_id, parent, step in zip(tree.token_ids, tree.parents, steps, strict=True):
        reached.append(0.0 if token_id in ends else reached[parent + 1] * step)
    joint[parents, token_ids] = 0.0
    if ends:
        joint[:, list(ends)] = 0.0
    joint *= torch.tensor(reached, dtype=scores.dtype, device=scores.device)[:, None]
    values, places = joint.flatten().topk(min(count, joint.numel()))
    found = []
    for probability, place in zip(values.tolist(), places.tolist(), strict=True):
        node, own = divmod(place, joint.shape[1])
        if probability >= LEAST:
            path = tree.tokens_to(node - 1) if node else tree.tokens_to(ROOT)
            found.append(Outcome((*path, own), probability))
    return found
