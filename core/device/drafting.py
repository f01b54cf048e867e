"""Drafts as one pass over tensors: catching up, then level by level the choice of children and the
pass that feeds them, for every SSM and request at once.

Chooses as `core.drafters.proposers` does, topk and coupled; no token is looked at on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.config import SamplingParams
from core.device.ground import Ground
from core.device.layout import Layout, Tables
from core.device.slips import Slip
from core.noise import gumbel_vectors
from core.sampling import processed

__all__ = ["ENDS", "NO_TOKEN", "Drafted", "Drafting", "Manner", "ends_of", "slip_shapes"]

# End-of-text tokens that a pass has room for.
ENDS = 8
NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Manner:
    """How children are chosen: by which noise, if by any, and from which processed distribution.
    `vocab_size` is the LLM's."""

    coupled: bool
    sampling: SamplingParams
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """Of `rows` drafts of n nodes: `tokens` (rows, n), NO_TOKEN where the draft has no such node;
    `scores` (rows, n) float64; `logits` and `utilities` (rows, 1 + fed, V) by the root and the
    fed nodes, one tensor where scores are the logits' own. `start` (rows,): the slot behind the
    text."""

    tokens: torch.Tensor
    scores: torch.Tensor
    logits: torch.Tensor
    utilities: torch.Tensor
    start: torch.Tensor


def slip_shapes(rows: int, width: int, depth: int) -> dict[str, tuple[int, ...]]:
    """What a draft is told of each row: tokens that the model lacks, behind how many, of how many
    each; how deep the draft may be, what ends a text, the calibration, and what the noise at the
    root's children and below hashes."""
    return {
        "tokens": (rows, width),
        "first": (rows,),
        "count": (rows,),
        "depth": (rows,),
        "ends": (rows, ENDS),
        "temperature": (rows,),
        "bases": (rows, depth + 1),
    }


def ends_of(token_ids: frozenset[int]) -> list[int]:
    """End-of-text tokens as a slip holds them."""
    return [*sorted(token_ids), *[NO_TOKEN] * (ENDS - len(token_ids))]


@dataclass(frozen=True, slots=True)
class Drafting:
    """Drafts of one layout on one ground."""

    ground: Ground
    layout: Layout
    tables: Tables
    manner: Manner
    slip: Slip

    def __call__(self) -> Drafted:
        """The drafts of what the slip tells."""
        told, layout = self.slip.here, self.layout
        start = told["first"] + told["count"]
        logits = self._known(self.ground.text(told["tokens"], told["first"], told["count"]))
        # Which of a level's parents may have children; the root always.
        grows = torch.ones_like(start, dtype=torch.bool)[:, None]
        every: list[tuple[torch.Tensor, ...]] = []
        for depth, level in enumerate(layout.levels, start=1):
            ids, scores, utilities = self._children(logits, depth)
            families = grows[..., None].expand(-1, -1, layout.shape[depth - 1])
            here = families.flatten(1) & (scores > 0)
            here &= (told["depth"] >= depth)[:, None]
            every.append((ids.masked_fill(~here, NO_TOKEN), scores.double(), logits, utilities))
            if level.stop == len(layout):
                break
            ended = (ids[..., None] == told["ends"][:, None]).any(-1)
            grows = here & ~ended
            logits = self._known(self._fed(ids, depth, level, start))
        tokens, chances, before, used = (torch.cat(part, 1) for part in zip(*every, strict=True))
        return Drafted(tokens, chances, before, used if self.manner.coupled else before, start)

    def _children(
        self, logits: torch.Tensor, depth: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens and scores (rows, children) of a level's nodes, by their parents' logits; and what
        the scores are the softmax of."""
        utilities, sampling = logits, self.manner.sampling
        if self.manner.coupled:
            scores = processed(logits.flatten(0, 1), sampling).view(logits.shape)
            noise = gumbel_vectors(self.slip.here["bases"][:, depth - 1 : depth], logits.shape[2])
            utilities = scores.double().log_softmax(dim=-1) + noise
        temperature = self.slip.reals("temperature")[:, None, None].to(utilities.dtype)
        scores, ids = (utilities / temperature).softmax(-1).topk(self.layout.shape[depth - 1])
        return ids.flatten(1), scores.flatten(1), utilities

    def _fed(
        self, ids: torch.Tensor, depth: int, level: range, start: torch.Tensor
    ) -> torch.Tensor:
        fed = self.layout.fed
        sees = self.tables.sees[level.start + 1 : level.stop + 1, 1 : fed + 1]
        depths = self.tables.depths[level.start + 1 : level.stop + 1]
        return self.ground.nodes(ids, depths, level, start, sees)

    def _known(self, logits: torch.Tensor) -> torch.Tensor:
        """Padded to the LLM's vocabulary with -inf, or cut."""
        size = self.manner.vocab_size
        missing = size - logits.shape[-1]
        return (
            F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[..., :size]
        )
