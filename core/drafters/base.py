"""The Drafter protocol: asks in, drafts out; plain values and the drafter's own tensors.

A drafter serves many sequences: it keeps what it needs for each between `open` and `close`. It
never sees the engine, the LLM or the other drafters.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Protocol

import torch

from core.length.base import Stop
from core.sequence import Sequence, Timed
from core.tree import ROOT, depths_of

__all__ = ["Ask", "Draft", "Drafter", "Drafts", "chances_of"]


@dataclass(frozen=True, slots=True)
class Ask:
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


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafter's tree for one sequence; parallel lists, parents first, ROOT is the root.

    `scores`, `qs`, `ranks` as in `core.tree.Proposal`. `rows[parent]` is the row of `logits` (and
    of `q`) that the children of `parent` were taken from. `logits`: (rows, V) float32, unprocessed.
    `utilities`: what the scores are the softmax of, if not `logits` (coupled drafts). `q`: (rows,
    V) float64, only where tokens were drawn. `passes`: the drafter's model passes, the catch-up's
    included. `ahead`: how many passes made during the last verification it rests on; where there
    are any, time and `passes` are what was missing. `next_temperature`: the calibration
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
    timed: tuple[Timed, ...] = ()
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


Drafts = list[Draft] | BaseException
"""A drafter's answer, one draft an ask, or how it failed."""


class Drafter(Protocol):
    """Proposes tokens. `name` is unique among a run's drafters."""

    @property
    def name(self) -> str: ...

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        """Takes up a sequence and reads its tokens but the last; returns the time it took."""
        ...

    def draft(self, asks: Many[Ask]) -> list[Draft]:
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
        weights need them (`core.weights`)."""
        ...


def chances_of(draft: Draft) -> tuple[float, ...]:
    """Each node's product of scores from the root down: its chance to be accepted, as the drafter
    sees it."""
    chances: list[float] = []
    for parent, score in zip(draft.parents, draft.scores, strict=True):
        chances.append(score * (1.0 if parent == ROOT else chances[parent]))
    return tuple(chances)
