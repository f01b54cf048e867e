"""The fastest way this machine has for a pass over lean weights: compiled on a CPU, as captured
graphs on a GPU, else written out in torch.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from core.errors import UnsupportedModelError
from core.models.forward import Forward, MaskKind, TensorForward
from core.models.graphed import in_few_launches
from core.models.kv_cache import KVArena
from core.models.lean import LeanForward, LeanWeights
from core.models.machine import available_bytes
from core.models.stacked import StackedForward

if TYPE_CHECKING:
    from core.models.native.forward import CompiledForward, Drafted, Ready
    from core.models.native.kernel_args import Told
    from core.models.native.workspace import Room

__all__ = ["compiled", "compiled_of", "drafted", "fastest", "written_out"]

# The compiled pass lays the weights out anew; half of the free memory stays free.
ROOM = 2


def fastest(weights: LeanWeights, masks: MaskKind) -> Forward:
    """A pass of one model, or of several that lie on one another (`core.models.batch`)."""
    return compiled(weights, masks) or in_few_launches(written_out(weights, masks))


def written_out(weights: LeanWeights, masks: MaskKind) -> TensorForward:
    """The same in torch's own calls."""
    stacked = weights.embedding.dim() == 3
    return StackedForward(weights) if stacked else LeanForward(weights, masks)


def compiled(weights: LeanWeights, masks: MaskKind) -> CompiledForward | None:
    """The compiled pass; None where it is not for this device or dtype, memory is short, or there
    is no compiler at hand."""
    if weights.embedding.device.type != "cpu" or weights.head_size % 2:
        return None
    if weights.embedding.dtype not in (torch.float32, torch.bfloat16):
        return None
    free = available_bytes(torch.device("cpu"))
    if (free is not None and ROOM * weights.bytes > free) or find_spec("numba") is None:
        return None
    try:
        from core.models.native.forward import CompiledForward

        found = CompiledForward(weights, masks)
        found.try_out()
    except (ImportError, OSError, RuntimeError, UnsupportedModelError):
        return None  # no numba that fits, or nothing that it can do: torch's calls do as well
    return found


def compiled_of(forward: Forward) -> CompiledForward | None:
    """A pass that is compiled; None for others."""
    if not getattr(forward, "workers", 0):
        return None  # no compiler need be at hand to say so
    from core.models.native.forward import CompiledForward

    return forward if isinstance(forward, CompiledForward) else None


def drafted(
    forward: Forward, wanted: tuple[Told, Room, Ready], place: tuple[KVArena, int]
) -> Drafted:
    """`CompiledForward.drafts` in an arena that has at least so many rows."""
    made, (arena, rows) = compiled_of(forward), place
    assert made is not None, "only a compiled pass drafts so"
    arena.reserve(rows, wanted[1].slots)
    return made.drafts(*wanted, arena)
