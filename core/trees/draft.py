"""Draft: one drafter's proposals for one sequence in one round, as a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from core.events.parts import Timed
from core.trees.tree import ROOT, depths_of

__all__ = ["Draft", "cumulative_scores"]


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafter's tree for one sequence: parallel lists, parents first.

    `scores`, `qs`, `ranks`: as in `Proposal` (tree.py). `rows[parent]`: the row of `logits` and `q`
    from which the children of `parent` were chosen. `logits` (rows, V) float32, unprocessed except
    for the request's repetition penalty. `utilities` (rows, V): the scores are their calibrated
    softmax; None if the utilities are the `logits`. `q` (rows, V) float64; None if the proposals
    are deterministic.

    `passes`: model passes in this round, and the root's pass, which may have run earlier.
    `passes_ahead`: passes during the previous verification. `next_temperature`: the calibration
    temperature after this round; None unless the device committed the round. `moments`: mean and
    variance of each row's utilities under the calibrated softmax; None if not computed.

    `origins`: each node's drafter index in a fused draft (see core/drafters/fused_tree.py).
    `contexts`, `shares`: as in `DraftRecord` (core/events). `top`: if the logits are in another
    process, each node's likeliest next tokens and their probabilities (key ROOT: the root's).
    """

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    qs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    logits: torch.Tensor | None = None
    utilities: torch.Tensor | None = None
    q: torch.Tensor | None = None
    timings: tuple[Timed, ...] = ()
    passes: int = 0
    passes_ahead: int = 0
    next_temperature: float | None = None
    moments: Sequence[tuple[float, float]] | None = None
    origins: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    top: Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depths(self) -> tuple[int, ...]:
        return depths_of(self.parents)

    def walk(self, token_ids: Sequence[int]) -> list[int]:
        """Nodes along `token_ids` from the root, as far as the draft has them.

        If a token was drawn twice under one parent, the first draw is followed.
        """
        path, node = [], ROOT
        for token_id in token_ids:
            # Linear: a draft is small.
            child = next(
                (
                    i
                    for i, parent in enumerate(self.parents)
                    if parent == node and self.token_ids[i] == token_id
                ),
                None,
            )
            if child is None:
                break
            path.append(child)
            node = child
        return path


def cumulative_scores(draft: Draft) -> tuple[float, ...]:
    """By node, the product of scores from the root down: the drafter's estimate of P(the node is
    accepted)."""
    results: list[float] = []
    for parent, score in zip(draft.parents, draft.scores, strict=True):
        results.append(score * (1.0 if parent == ROOT else results[parent]))
    return tuple(results)
