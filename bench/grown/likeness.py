"""Likeness: how far a grown model's logits are from the small model's, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.errors import UnsupportedModelError

WHOLE_ALLOWED = 1e-3
# Of the largest logit: half precisions round sums that are made in another order.
HALF_ALLOWED = 0.06
TEXT_LENGTH = 96
WHOLE = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Likeness:
    """Over `tokens` positions: the largest difference of logits, the largest logit, and at how many
    positions both find the same token likeliest."""

    difference: float
    largest: float
    tokens: int
    same: int


@torch.inference_mode()
def likeness(small: Any, large: Any, texts: Sequence[Sequence[int]]) -> Likeness:
    """Both modules over the same texts (token ids), a pass each."""
    difference = largest = 0.0
    tokens = same = 0
    for text in texts:
        one, other = (_logits(module, text) for module in (small, large))
        difference = max(difference, float((one - other).abs().max()))
        largest = max(largest, float(one.abs().max()))
        tokens += len(text)
        same += int((one.argmax(-1) == other.argmax(-1)).sum())
        if not bool(torch.isfinite(other).all()):
            difference = float("inf")
    return Likeness(difference, largest, tokens, same)


def _logits(module: Any, text: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([list(text)], device=next(module.parameters()).device)
    logits: torch.Tensor = module(input_ids=ids, use_cache=False).logits[0].float()
    return logits


def check_likeness(found: Likeness, dtype: torch.dtype, name: str) -> None:
    """Raises UnsupportedModelError where the grown model is another one."""
    allowed = WHOLE_ALLOWED if dtype in WHOLE else HALF_ALLOWED * max(found.largest, 1.0)
    if not found.difference <= allowed:
        raise UnsupportedModelError(
            f"{name} grown differs from the small model by {found.difference:.3g} in its logits: "
            f"at most {allowed:.3g} is allowed"
        )


def some_texts(
    tokenizer: Any, texts: Sequence[str], vocabulary: int, limit: int
) -> list[list[int]]:
    """The texts' token ids and one text of random ones (a tokenizer may know no word of the texts),
    each cut to `TEXT_LENGTH` or `limit`."""
    length = min(TEXT_LENGTH, limit)
    every = (list(tokenizer(text)["input_ids"]) for text in texts)
    drawn = torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(0))
    return [*(ids[:length] for ids in every if ids), drawn.tolist()]
