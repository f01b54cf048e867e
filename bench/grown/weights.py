"""The weights of a grown model, tensor by tensor.

The invariants, from which it follows that the logits are the small model's:

1. In the residual stream the first channels are the small model's and all others are zero: the new
   columns of the embedding are zero, and so are the new rows (outputs) of `o_proj` and `down_proj`.
2. A norm sees a mean of squares that is 1 / factor of the small one's. With eps / factor and
   weights times sqrt(1 / factor) it gives the small model's values in the old channels, zero in
   the new. With a factor of 4^k both corrections are powers of two, which no dtype rounds.
3. What a matrix makes of the old channels for old heads and old feed-forward units is unchanged:
   its upper left block is the small one's. Its new columns meet only zeros: they may be anything.
4. New heads and new feed-forward units compute something, random, from the old channels; the
   columns of `o_proj` and `down_proj` that would let it in are zero.
5. A new layer computes everything and adds nothing: its `o_proj` and `down_proj` are zero.
6. Qwen3's norms of heads share eps with the other norms: old queries and keys are scaled by the
   same correction, which such a norm takes out again.

What is neither the small model's nor zero for these reasons is random, so that every product is
dense. The zeros are written ones: pages never written to would be one shared page of memory, which
is read faster than weights are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from bench.grown.shape import Plan

ZERO = frozenset({"embed_tokens", "o_proj", "down_proj"})
NORMS = frozenset({"input_layernorm", "post_attention_layernorm", "norm"})
HEAD_NORMS = frozenset({"q_norm", "k_norm"})
RANDOM = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"})
# Whose weights and biases a model that can be grown has, and no others.
OWNERS = ZERO | NORMS | HEAD_NORMS | RANDOM


@dataclass(frozen=True, slots=True)
class Filler:
    """Makes any tensor of a grown model on `device`, each from `seed` and its name alone, so that
    one written to a file in parts and one made in memory are the same (on one kind of device).
    `spread`: the random weights' standard deviation."""

    plan: Plan
    seed: int
    spread: float
    dtype: torch.dtype
    device: torch.device

    @torch.no_grad()
    def tensor(self, name: str, shape: torch.Size, old: torch.Tensor | None) -> torch.Tensor:
        """The parameter `name` of this shape; `old` is the small model's, None in a new layer."""
        owner = name.split(".")[-2]
        made = torch.empty(shape, dtype=self.dtype, device=self.device)
        if owner in ZERO:
            made.zero_()
        elif owner in NORMS:
            made.fill_(self.plan.correction)
        elif owner in HEAD_NORMS:
            made.fill_(1.0)
        else:
            made.normal_(0.0, self.spread, generator=self._generator(name))
        if old is not None:
            block = tuple(slice(size) for size in old.shape)
            made[block] = (old.float() * self._correction(owner)).to(made)
        return made

    def _correction(self, owner: str) -> float:
        scaled = owner in NORMS
        scaled |= owner in ("q_proj", "k_proj") and self.plan.small.head_norms
        return self.plan.correction if scaled else 1.0

    def _generator(self, name: str) -> torch.Generator:
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 1
        return torch.Generator(self.device).manual_seed(seed)
