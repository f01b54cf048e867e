"""The Drafter protocol: draft requests in, drafts out.

A drafter serves many sequences and keeps a state for each sequence from `open` to `close`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.events.parts import Timed
from core.sequence import TokenSequence
from core.speculation_length.base import Stop
from core.trees.draft import Draft
from core.trees.tree import TokenTree

__all__ = ["DraftRequest", "Drafter", "Drafts", "PredictedOutcome", "top_outcomes"]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A request to the drafter `index` (in the run's fixed order) for one draft of one sequence.

    `shape` <k1,...,km>: children per frontier node at each step (SpecInfer 3.1), unless the draft
    is fused or by score (see `mechanisms.DraftKind`). The number of steps bounds the depth. The
    shape is already cut to `budget` nodes, unless the draft is by score. `kind`: a draft kind other
    than `auto`. `stop`: the length policy's rule, which may end the draft earlier. `beyond`: the
    distance from the text's last token to the draft's root, in tokens; above 0 if the draft is made
    ahead."""

    sequence: TokenSequence
    index: int
    kind: str
    shape: tuple[int, ...]
    budget: int
    name: str = ""
    stop: Stop | None = None
    beyond: int = 0

    @property
    def root_position(self) -> int:
        """Position of the draft's root."""
        return self.sequence.root_position + self.beyond

    @property
    def worth_starting(self) -> bool:
        """Whether there is a step to draft, and the length policy allows it."""
        return bool(self.shape) and self.continues(1, [1.0])

    def grows(self, score: float) -> bool:
        """See `core.speculation_length.Stop.grows`."""
        return self.stop is None or self.stop.grows(score)

    def continues(self, depth: int, scores: Sequence[float]) -> bool:
        """See `core.speculation_length.Stop.continues`."""
        return self.stop is None or self.stop.continues(self.name, depth, scores)


Drafts = list[Draft] | BaseException
"""Drafts, or the error with which drafting failed."""


class Drafter(Protocol):
    """Proposes tokens. `name` is unique among a run's drafters."""

    @property
    def name(self) -> str:
        """The drafter's key in weights, scores and events."""
        ...

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        """Makes the sequence's state; a model may prefill the tokens except the last token.
        Returns the time spans."""
        ...

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft per request; a draft may be empty."""
        ...

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        """Called after a round that committed `token_ids`. `draft`: this drafter's draft of the
        round; None: it did not draft."""
        ...

    def close(self, sequence: TokenSequence) -> None:
        """Drops the sequence's state; an unknown sequence is ignored."""
        ...

    def temperature(self, sequence: TokenSequence) -> float:
        """The calibration temperature of the drafter's scores; 1 if they are not calibrated."""
        ...

    def likelihoods(self, sequence: TokenSequence) -> list[float]:
        """The probabilities that the drafter gave to the text's tokens since the last call, in
        order; NaN for a token without a prediction. Needed only if
        `drafter_weights.needs_likelihoods`."""
        ...


# Less probable outcomes are not worth a draft.
MIN_OUTCOME_PROBABILITY = 0.01


@dataclass(frozen=True, slots=True)
class PredictedOutcome:
    """A possible result of a verification: the tokens it would commit, the LLM's own token last."""

    token_ids: tuple[int, ...]
    probability: float


def top_outcomes(
    tree: TokenTree, scores: torch.Tensor, count: int, ends: Collection[int] = ()
) -> list[PredictedOutcome]:
    """At most `count` outcomes of verifying `tree`: the most probable, of at least 1 %, best first.

    `scores` (1 + nodes, V): P(the LLM chooses y) after the root and after each node. An outcome
    that ends at node u with the LLM's own token y has the probability P(path to u) P(y | u); y is
    not a child of u, since a child would have been accepted. Outcomes with a token of `ends` are
    left out: no round follows them.
    """
    # joint[u, y] becomes P(path to u) P(y | u).
    joint = scores.clone()
    # Row 0 belongs to the root, row i + 1 to node i.
    parents = torch.tensor(tree.parents, dtype=torch.long, device=scores.device) + 1
    token_ids = torch.tensor(tree.token_ids, dtype=torch.long, device=scores.device)
    steps = scores[parents, token_ids].tolist()
    reached = [1.0]
    for token_id, parent, step in zip(tree.token_ids, tree.parents, steps, strict=True):
        # P(path to each row's node), 0 after an end of text.
        reached.append(0.0 if token_id in ends else reached[parent + 1] * step)
    joint[parents, token_ids] = 0.0
    if ends:
        joint[:, list(ends)] = 0.0
    joint *= torch.tensor(reached, dtype=scores.dtype, device=scores.device)[:, None]
    values, indices = joint.flatten().topk(min(count, joint.numel()))
    outcomes = []
    for probability, index in zip(values.tolist(), indices.tolist(), strict=True):
        row, token_id = divmod(index, joint.shape[1])
        if probability >= MIN_OUTCOME_PROBABILITY:
            # Row 0 belongs to ROOT, which is -1.
            path = tree.tokens_to(row - 1)
            outcomes.append(PredictedOutcome((*path, token_id), probability))
    return outcomes
