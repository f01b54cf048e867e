"""Draft: what one drafter proposes for one sequence in one round, as a tree of its own."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from core.events.parts import Timed
from core.trees.tree import ROOT, depths_of

__all__ = ["Draft", "chances_of"]


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafter's tree for one sequence; parallel lists, parents first, ROOT is the root.

    `scores`, `qs`, `ranks` as in `Proposal`. `rows[parent]` is the row of `logits` (and
    of `q`) that the children of `parent` were taken from. `logits`: (rows, V) float32, unprocessed.
    `utilities`: what the scores are the softmax of, if not `logits` (coupled drafts). `q`: (rows,
    V) float64, only where tokens were drawn. `passes`: the drafter's model passes, the catch-up's
    included. `ahead`: how many of the passes that made it ran during the last verification; where
    there are any, time and `passes` count the others only. `next_temperature`: the calibration
    temperature after the round, if the pass that drafted has committed too (`core.cuda`).
    `moments`: of each row the utilities' mean and variance by the scores, if known.
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
    ahead: int = 0
    next_temperature: float | None = None
    moments: Many[tuple[float, float]] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depths(self) -> tuple[int, ...]:
        return depths_of(self.parents)

    def walk(self, token_ids: Many[int]) -> list[int]:
        """Nodes along `token_ids` from the root, as far as the draft has them.

        Where a token was drawn twice under one parent, the first draw is followed.
        """
        path, node = [], ROOT
        for token_id in token_ids:
            found = next(
                (
                    i
                    for i, parent in enumerate(self.parents)
                    if parent == node and self.token_ids[i] == token_id
                ),
                None,
            )
            if found is None:
                break
            path.append(found)
            node = found
        return path


def chances_of(draft: Draft) -> tuple[float, ...]:
    """Each node's product of scores from the root down: its chance to be accepted, as the drafter
    sees it."""
    chances: list[float] = []
    for parent, score in zip(draft.parents, draft.scores, strict=True):
        chances.append(score * (1.0 if parent == ROOT else chances[parent]))
    return tuple(chances)
