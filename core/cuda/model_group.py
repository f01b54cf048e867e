"""ModelGroup: models that run in a single forward pass over tensors, a whole stack or one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.models.batch import stacked
from core.models.forward import TensorForward
from core.models.hf_model import HfModel
from core.models.kv_cache import KVArena
from core.models.protocol import LanguageModel

__all__ = ["ModelGroup", "model_group_of"]


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """`members` in the order of their rows in the `arena`; they have one vocabulary size."""

    members: tuple[HfModel, ...]
    forward: TensorForward
    arena: KVArena

    @property
    def vocab_size(self) -> int:
        return self.members[0].vocab_size

    def reserve(self, extent: int) -> tuple[int, int]:
        """Grows the arena to at least `extent` slots a row. Returns its rows and slots: when they
        change, the arena's tensors have moved."""
        self.arena.reserve(max(member.rows_held for member in self.members), extent)
        self.forward.reach(self.arena.slots)
        return self.arena.rows, self.arena.slots


def model_group_of(models: Sequence[LanguageModel]) -> ModelGroup | None:
    """The group of these models, in any order; None if they do not run in a single pass."""
    stack = stacked(models)
    if stack is not None:
        if stack.tensors is None:
            return None
        return ModelGroup(stack.members, stack.tensors, stack.arena)
    one = models[0] if len(models) == 1 else None
    if not isinstance(one, HfModel) or one.tensors is None:
        return None
    return ModelGroup((one,), one.tensors, one.arena)
