"""Passes over LeanWeights: compiled code, CUDA graphs or torch calls."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from core.errors import UnsupportedModelError
from core.models.forward import Forward, MaskKind, TensorForward
from core.models.graphed import in_few_launches
from core.models.layer_stream import LayerStream
from core.models.lean import LeanForward, LeanWeights
from core.models.lean_stacked import StackedForward
from core.models.machine import available_bytes

if TYPE_CHECKING:
    from core.models.native.forward import CompiledForward

__all__ = [
    "compile_forward",
    "compiled_of",
    "fastest",
    "streamed_forward",
    "torch_forward",
]

# The compiled pass copies the weights into its own layout; half of the free memory must stay free.
MIN_FREE_PER_WEIGHT_BYTE = 2


def fastest(weights: LeanWeights, masks: MaskKind) -> Forward:
    """The fastest pass of one model or of stacked models."""
    return compile_forward(weights, masks) or in_few_launches(torch_forward(weights, masks))


def torch_forward(weights: LeanWeights, masks: MaskKind) -> TensorForward:
    """The pass in torch calls."""
    is_stack = weights.embedding.dim() == 3
    return StackedForward(weights) if is_stack else LeanForward(weights, masks)


def compile_forward(weights: LeanWeights, masks: MaskKind) -> CompiledForward | None:
    """The native pass; None if it does not support the weights, if memory is short, or if numba is
    missing or fails."""
    # The kernels rotate a head in two halves: its size has to be even.
    if weights.embedding.device.type != "cpu" or weights.head_size % 2:
        return None
    if weights.embedding.dtype not in (torch.float32, torch.bfloat16):
        return None
    free = available_bytes(torch.device("cpu"))
    if free is not None and MIN_FREE_PER_WEIGHT_BYTE * weights.bytes > free:
        return None
    if find_spec("numba") is None:
        return None
    try:
        from core.models.native.forward import CompiledForward

        compiled_forward = CompiledForward(weights, masks)
        # Else the first request would wait for compilation.
        compiled_forward.try_out()
    except (ImportError, OSError, RuntimeError, UnsupportedModelError):
        return None
    return compiled_forward


def streamed_forward(
    weights: LeanWeights, masks: MaskKind, stream: LayerStream, native: tuple[Any, Any]
) -> Forward:
    """The pass of an offloaded model. `native`: the kernels of a compiled pass (`HfModel.kernels`)
    and the element type of the streamed matrices, or (None, None)."""
    kernels, element = native
    if kernels is None:
        return LeanForward(weights, masks, stream)
    from core.models.native.forward import CompiledForward

    forward = CompiledForward(weights, masks, (stream, element))
    # Compiled for the tree check already.
    forward.kernels = kernels
    return forward


def compiled_of(forward: Forward) -> CompiledForward | None:
    """`forward` if it is native, else None."""
    # Only a compiled pass has worker threads: other passes are rejected without importing numba.
    if not getattr(forward, "workers", 0):
        return None
    from core.models.native.forward import CompiledForward

    return forward if isinstance(forward, CompiledForward) else None
