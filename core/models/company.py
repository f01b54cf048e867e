"""Company: models whose compiled pass is one, asked query by query: no feeds, nothing padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from core.models.hf_model import HfModel
from core.models.language_model import LanguageModel
from core.models.stack import Stack

if TYPE_CHECKING:
    from core.models.compiled.asking import Query
    from core.models.compiled.described import Told
    from core.models.compiled.forward import Drafted, Ready
    from core.models.compiled.scratch import Room

__all__ = ["Company", "company_of"]


class Host(Protocol):
    """Who makes the pass: see `HfModel.answers`."""

    def answers(self, asked: Sequence[Sequence[Query]], wanted: Sequence[int]) -> torch.Tensor: ...

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted: ...


@dataclass(frozen=True, slots=True)
class Company:
    """`members` in the order in which their weights lie."""

    members: tuple[HfModel, ...]
    host: Host

    def answers(self, asked: Mapping[int, Sequence[Query]], wanted: Sequence[int]) -> torch.Tensor:
        """Logits (wanted, V) float32 of the queries of some members, by their place here; `wanted`
        counts through all queries, in the order of the members."""
        return self.host.answers([asked.get(i, ()) for i in range(len(self.members))], wanted)

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted:
        """Drafts of some members, by their place here, with little between passes."""
        return self.host.drafts(told, room, ready)


def company_of(model: LanguageModel) -> Company | None:
    """The company that a model is in, alone perhaps; None where its pass is not compiled, or does
    not see all of a text."""
    if not isinstance(model, HfModel) or model.masks.window:
        return None
    stack = model.stack
    if isinstance(stack, Stack):
        return Company(stack.members, stack) if stack.compiled else None
    return Company((model,), model) if model.compiled else None
