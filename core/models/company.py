"""Company: models whose compiled pass is one, and who drafts on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from core.models.hf_model import HfModel
from core.models.language_model import LanguageModel
from core.models.stack import Stack

if TYPE_CHECKING:
    from core.models.compiled.described import Told
    from core.models.compiled.forward import Drafted, Ready
    from core.models.compiled.scratch import Room

__all__ = ["Company", "company_of"]


class Host(Protocol):
    """The model or stack that makes the passes."""

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted: ...


@dataclass(frozen=True, slots=True)
class Company:
    """`members` in the order in which their weights lie."""

    members: tuple[HfModel, ...]
    host: Host

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted:
        """See `CompiledForward.drafts`; members are numbered as here."""
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
