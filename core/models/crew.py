"""Crew: models whose passes over tensors are one, those of a whole stack or a single one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.models.forward import TensorForward
from core.models.hf_model import HfModel
from core.models.kv_cache import KVArena
from core.models.language_model import LanguageModel
from core.models.together import stacked

__all__ = ["Crew", "crew_of"]


@dataclass(frozen=True, slots=True)
class Crew:
    """`members` in the order in which their rows lie beside one another in the `arena`."""

    members: tuple[HfModel, ...]
    forward: TensorForward
    arena: KVArena

    @property
    def vocab_size(self) -> int:
        """Of each of them."""
        return self.members[0].vocab_size

    def reserve(self, extent: int) -> tuple[int, int]:
        """Makes room for `extent` slots of every row; rows and slots that there are now. Where they
        change, the arena lies elsewhere."""
        self.arena.reserve(max(member.rows_held for member in self.members), extent)
        self.forward.reach(self.arena.slots)
        return self.arena.rows, self.arena.slots


def crew_of(models: Sequence[LanguageModel]) -> Crew | None:
    """The crew that the models, in whatever order, are; None where their passes cannot be one."""
    stack = stacked(models)
    if stack is not None:
        return None if stack.tensors is None else Crew(stack.members, stack.tensors, stack.arena)
    one = models[0] if len(models) == 1 else None
    if not isinstance(one, HfModel) or one.tensors is None:
        return None
    return Crew((one,), one.tensors, one.arena)
