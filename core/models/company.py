"""Company: models whose compiled pass is one, asked query by query: no feeds, nothing padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core.models.hf_model import HfModel
from core.models.kv_cache import KVArena
from core.models.language_model import LanguageModel
from core.models.stack import Stack

if TYPE_CHECKING:
    from core.models.compiled.asking import Query
    from core.models.compiled.forward import CompiledForward

__all__ = ["Company", "company_of"]


@dataclass(frozen=True, slots=True)
class Company:
    """`members` in the order in which their weights lie."""

    members: tuple[HfModel, ...]
    forward: CompiledForward
    arena: KVArena

    @torch.inference_mode()
    def answers(self, asked: Mapping[int, Sequence[Query]], wanted: Sequence[int]) -> torch.Tensor:
        """Logits (wanted, V) float32 of the queries of some members, by their place here; `wanted`
        counts through all queries, in the order of the members."""
        queries = [asked.get(place, ()) for place in range(len(self.members))]
        slots = 1 + max(query.slot for own in queries for query in own)
        self.arena.reserve(max(member.rows_held for member in self.members), slots)
        return self.forward.answers(queries, wanted, self.arena)


def company_of(model: LanguageModel) -> Company | None:
    """The company that a model is in, alone perhaps; None where its pass is not compiled, or does
    not see all of a text."""
    if not isinstance(model, HfModel) or model.masks.window:
        return None
    stack = model.stack
    if isinstance(stack, Stack):
        forward = stack.compiled
        return Company(stack.members, forward, stack.arena) if forward else None
    return Company((model,), model.compiled, model.arena) if model.compiled else None
