"""An LM head over the first token ids; `draft_vocab_size` in config.json is their number.

Most of a small model's pass is its head. BPE numbers tokens in the order of merges, and most tokens
of a text have low ids. For a token without a logit the drafter's probability q is 0, which every
verification rule allows. The idea is from FR-Spec (arXiv 2502.14856), which takes the most frequent
ids.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.config import checks

__all__ = ["FIELD", "NarrowHead", "narrow_head"]

FIELD = "draft_vocab_size"


class NarrowHead(nn.Module):
    """A tied head of the first `size` tokens: a view of the input `embeddings`."""

    bias = None

    def __init__(self, embeddings: nn.Module, size: int) -> None:
        super().__init__()
        # In a tuple: a submodule's weights would be saved a second time.
        self._embeddings = (embeddings,)
        self._size = size

    @property
    def weight(self) -> torch.Tensor:
        """(size, hidden)."""
        rows: torch.Tensor = self._embeddings[0].weight[: self._size]  # type: ignore[index]
        return rows

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.weight)


def narrow_head(module: Any) -> None:
    """Narrows the head to the `draft_vocab_size` of the configuration, if it has one. Raises
    ConfigError for an invalid size."""
    size = getattr(module.config, FIELD, None)
    if size is None:
        return
    head, embeddings = module.get_output_embeddings(), module.get_input_embeddings()
    checks.integer(FIELD, size, 1, len(head.weight))
    if head.weight is embeddings.weight:
        module.set_output_embeddings(NarrowHead(embeddings, size))
        return
    # Copies: views would keep the full head in memory.
    head.weight = nn.Parameter(head.weight.detach()[:size].clone(), requires_grad=False)
    if head.bias is not None:
        head.bias = nn.Parameter(head.bias.detach()[:size].clone(), requires_grad=False)
