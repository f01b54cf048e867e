"""What a training step minimises, by the name a recipe gives it.

A loss maps (model, windows) to one number. The teacher of a distilling loss is bound by whoever
puts it in the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from core import checks

__all__ = ["LOSSES", "Loss", "loss_named", "next_token"]

Loss = Callable[[nn.Module, Tensor], Tensor]


def next_token(model: nn.Module, windows: Tensor) -> Tensor:
    """Mean cross entropy in nats of each token given those before it.

    `windows`: int64, (batch, length + 1).
    """
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


LOSSES: MappingProxyType[str, Loss] = MappingProxyType({"next_token": next_token})


def loss_named(name: str) -> Loss:
    """The loss of that name; ConfigError with the names there are."""
    checks.choice("loss", name, tuple(LOSSES))
    return LOSSES[name]


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 matrix products on CUDA; float32 throughout on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
