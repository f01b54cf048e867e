"""DraftPass: drafting as one function over tensors, for all SSMs and requests together.

Children are chosen by the rules of `topk` and `coupled` in `core.drafters.proposers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.config import SamplingParams
from core.cuda.kv_view import KvView, LayoutTensors, TreeLayout
from core.cuda.staging import HostToDevice
from core.drafters.ssm import NO_TOKEN
from core.trees.noise import gumbel_vectors
from core.trees.sampling import process_logits

__all__ = [
    "MAX_END_TOKENS",
    "ChildChoice",
    "DraftPass",
    "DraftTensors",
    "draft_input_shapes",
    "padded_ends",
]

# Shapes are fixed: a DraftPass serves no request with more end-of-text tokens.
MAX_END_TOKENS = 8


@dataclass(frozen=True, slots=True)
class ChildChoice:
    """How children are chosen. `coupled`: by log q + noise, with `sampling` applied to q; else by
    logits alone. `vocab_size` is the LLM's."""

    coupled: bool
    sampling: SamplingParams
    vocab_size: int


@dataclass(frozen=True, slots=True)
class DraftTensors:
    """Drafts of n nodes, one draft in each row. `tokens` (rows, n): NO_TOKEN for absent nodes.
    `scores` (rows, n): float64. `logits` and `utilities` (rows, 1 + num_fed, V): at the root and
    the fed nodes; the same tensor unless coupled. `start` (rows,): the first slot after the
    text."""

    tokens: torch.Tensor
    scores: torch.Tensor
    logits: torch.Tensor
    utilities: torch.Tensor
    start: torch.Tensor


def draft_input_shapes(rows: int, width: int, depth: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs of a DraftPass by name. `tokens`: the text's unread tokens, then
    padding; `first`: the number of tokens already read; `count`: the number of unread tokens;
    `depth`: how deep a row's draft may be; `ends`: end-of-text tokens; `temperature`: the
    calibration temperature, as the bits of a float64; `bases`: noise hashes of the positions from
    the root's children on, read only if `coupled`."""
    return {
        "tokens": (rows, width),
        "first": (rows,),
        "count": (rows,),
        "depth": (rows,),
        "ends": (rows, MAX_END_TOKENS),
        "temperature": (rows,),
        "bases": (rows, depth + 1),
    }


def padded_ends(token_ids: frozenset[int]) -> list[int]:
    """End-of-text tokens, padded with NO_TOKEN to MAX_END_TOKENS."""
    return [*sorted(token_ids), *[NO_TOKEN] * (MAX_END_TOKENS - len(token_ids))]


@dataclass(frozen=True, slots=True)
class DraftPass:
    """Makes drafts of one layout in one view of the SSMs' KV cache."""

    view: KvView
    layout: TreeLayout
    tables: LayoutTensors
    choice: ChildChoice
    inputs: HostToDevice

    def __call__(self) -> DraftTensors:
        """Drafts for the inputs that were sent last."""
        inputs, layout = self.inputs.device, self.layout
        start = inputs["first"] + inputs["count"]
        # (rows, 1, V) after each root.
        text = self.view.text_logits(inputs["tokens"], inputs["first"], inputs["count"])
        logits = self._pad_vocabulary(text)
        # Which parents of a level may have children.
        expands = torch.ones_like(start, dtype=torch.bool)[:, None]
        levels: list[tuple[torch.Tensor, ...]] = []
        for depth, level in enumerate(layout.levels, start=1):
            ids, scores, utilities = self._children(logits, depth)
            # (rows, parents) to (rows, parents, children).
            families = expands[..., None].expand(-1, -1, layout.shape[depth - 1])
            present = families.flatten(1) & (scores > 0)
            # Rows may differ in depth.
            present &= (inputs["depth"] >= depth)[:, None]
            levels.append((ids.masked_fill(~present, NO_TOKEN), scores.double(), logits, utilities))
            if level.stop == len(layout):
                break
            ended = (ids[..., None] == inputs["ends"][:, None]).any(-1)
            expands = present & ~ended
            # Shapes are fixed: absent nodes are fed too. No present node attends to an absent node.
            logits = self._pad_vocabulary(self._feed(ids, depth, level, start))
        tokens, scores, logits, utilities = (
            torch.cat(part, 1) for part in zip(*levels, strict=True)
        )
        if not self.choice.coupled:
            utilities = logits
        return DraftTensors(tokens, scores, logits, utilities, start)

    def _children(
        self, logits: torch.Tensor, depth: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens and scores (rows, nodes) of a level from its parents' logits, and the utilities
        (rows, parents, V). The scores are softmax(utilities / temperature)."""
        utilities, sampling = logits, self.choice.sampling
        if self.choice.coupled:
            scores = process_logits(logits.flatten(0, 1), sampling).view(logits.shape)
            bases = self.inputs.device["bases"][:, depth - 1 : depth]
            noise = gumbel_vectors(bases, logits.shape[2])
            utilities = scores.double().log_softmax(dim=-1) + noise
        temperature = self.inputs.reals("temperature")[:, None, None].to(utilities.dtype)
        # (rows, parents, children). Flattening keeps siblings together, in the order of TreeLayout.
        scores, ids = (utilities / temperature).softmax(-1).topk(self.layout.shape[depth - 1])
        return ids.flatten(1), scores.flatten(1), utilities

    def _feed(
        self, ids: torch.Tensor, depth: int, level: range, start: torch.Tensor
    ) -> torch.Tensor:
        num_fed = self.layout.num_fed
        # The root is committed text here: its row and column are left out.
        ancestors = self.tables.ancestors[level.start + 1 : level.stop + 1, 1 : num_fed + 1]
        depths = self.tables.depths[level.start + 1 : level.stop + 1]
        return self.view.node_logits(ids, depths, level, start, ancestors)

    def _pad_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Pads with -inf, or cuts, to the LLM's vocabulary size."""
        size = self.choice.vocab_size
        missing = size - logits.shape[-1]
        return (
            F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[..., :size]
        )
