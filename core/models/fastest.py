"""Chooses the fastest pass over lean weights on this machine: compiled on a CPU, captured graphs on
a GPU, else torch calls.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from core.errors import UnsupportedModelError
from core.models.forward import Forward, MaskKind, TensorForward
from core.models.graphed import in_few_launches
from core.models.kv_cache import KVArena
from core.models.layer_stream import LayerStream
from core.models.lean import LeanForward, LeanWeights
from core.models.lean_stacked import StackedForward
from core.models.machine import available_bytes

if TYPE_CHECKING:
    from core.models.native.forward import CompiledForward, DraftResult, Ready
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = [
    "compile_forward",
    "compiled_of",
    "fastest",
    "kernels_of",
    "run_drafts",
    "stream_from_host",
    "streamed_forward",
    "torch_forward",
]

# The compiled pass copies the weights into its own layout; half of the free memory stays free.
ROOM = 2


def fastest(weights: LeanWeights, masks: MaskKind) -> Forward:
    """The pass of one model, or of stacked models (`core.models.stacking`)."""
    return compile_forward(weights, masks) or in_few_launches(torch_forward(weights, masks))


def torch_forward(weights: LeanWeights, masks: MaskKind) -> TensorForward:
    """The pass in torch calls."""
    stacked = weights.embedding.dim() == 3
    return StackedForward(weights) if stacked else LeanForward(weights, masks)


def compile_forward(weights: LeanWeights, masks: MaskKind) -> CompiledForward | None:
    """The native pass; None if it does not support the device or dtype, memory is short, or numba
    is missing."""
    if weights.embedding.device.type != "cpu" or weights.head_size % 2:
        return None
    if weights.embedding.dtype not in (torch.float32, torch.bfloat16):
        return None
    free = available_bytes(torch.device("cpu"))
    if (free is not None and ROOM * weights.bytes > free) or find_spec("numba") is None:
        return None
    try:
        from core.models.native.forward import CompiledForward

        compiled_forward = CompiledForward(weights, masks)
        # Compiles now, while loading, rather than in the first request.
        compiled_forward.try_out()
    except (ImportError, OSError, RuntimeError, UnsupportedModelError):
        return None  # numba is missing or fails here: the torch pass serves as well
    return compiled_forward


def streamed_forward(
    weights: LeanWeights, masks: MaskKind, stream: LayerStream, native: tuple[Any, Any]
) -> Forward:
    """The pass of an offloaded model. `native`: the compiled kernels of a pass of the same
    architecture (`kernels_of`) and the element type of the streamed matrices, or Nones."""
    kernels, element = native
    if kernels is None:
        return LeanForward(weights, masks, stream)
    from core.models.native.forward import CompiledForward

    forward = CompiledForward(weights, masks, (stream, element))
    forward.kernels = kernels
    return forward


def stream_from_host(forward: Forward, mbps: float) -> Forward:
    """See `CompiledForward.streamed`. Raises UnsupportedModelError for any other pass, and for one
    that is streamed already."""
    compiled = compiled_of(forward)
    if compiled is None or compiled.stream is not None:
        raise UnsupportedModelError(
            "the LLM's layers cannot be streamed from memory here: a compiled pass on a CPU, "
            "loaded without --offload, is allowed"
        )
    return compiled.with_streamed_layers(mbps)


def kernels_of(forward: Forward) -> Any:
    """The kernels of a compiled pass; of any other None."""
    compiled = compiled_of(forward)
    return None if compiled is None else compiled.kernels


def compiled_of(forward: Forward) -> CompiledForward | None:
    """The pass itself if it is native, else None."""
    # A compiled pass has threads of its own, one at least.
    if not getattr(forward, "workers", 0):
        return None  # importing numba is not needed to say so
    from core.models.native.forward import CompiledForward

    return forward if isinstance(forward, CompiledForward) else None


def run_drafts(
    forward: Forward, inputs: tuple[DraftBatch, DraftLimits, Ready], place: tuple[KVArena, int]
) -> DraftResult:
    """`CompiledForward.drafts` in an arena that has at least so many rows."""
    forward_compiled, (arena, rows) = compiled_of(forward), place
    assert forward_compiled is not None, "only a compiled pass drafts so"
    arena.reserve(rows, inputs[1].slots)
    return forward_compiled.drafts(*inputs, arena)
