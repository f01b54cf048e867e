"""A digest of a model's weights and configuration, to distinguish models of one name."""

from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import Any

import torch

__all__ = ["Fingerprint", "fingerprint_of", "identity_of"]

# At least this many values of a weight are digested; all values of a smaller weight.
FINGERPRINT_VALUES = 256
# Integer types by bytes of a value. A weight's values are added up as integers of the same bits:
# the sum, unlike a sum of floats, is the same in any order.
BITS = MappingProxyType({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64})
# Configuration fields that do not change a text, or that depend on device and dtype.
NOT_IDENTITY = (
    "_name_or_path",
    "architectures",
    "dtype",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)


def fingerprint_of(module: Any) -> str:
    """The fingerprint of a module with all its weights."""
    fingerprint = Fingerprint(module)
    for name, weight in module.state_dict().items():
        fingerprint.add(name, weight)
    return fingerprint.text


def identity_of(module: Any) -> str:
    """A module's non-default configuration fields, without NOT_IDENTITY, and its end-of-text
    tokens, as JSON."""
    ends = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    config = [_identity(module.config.to_diff_dict()), ends]
    return json.dumps(config, sort_keys=True, default=str)


class Fingerprint:
    """A digest of the module's `identity_of` and of each weight's name, shape, sum of bit patterns
    and some values. Digesting all values would take seconds per gigabyte."""

    def __init__(self, module: Any) -> None:
        self._digest = hashlib.sha256(identity_of(module).encode())

    @torch.inference_mode()
    def add(self, name: str, weight: torch.Tensor) -> None:
        """Adds the state dict's next weight to the digest."""
        values = weight.detach().flatten()
        step = max(1, values.numel() // FINGERPRINT_VALUES)
        total = int(values.view(BITS[weight.itemsize]).sum()) if values.numel() else 0
        self._digest.update(f"{name} {tuple(weight.shape)} {total} ".encode())
        # float64 is exact for every float type; NumPy has no bfloat16.
        self._digest.update(values[::step].double().cpu().numpy().tobytes())

    @property
    def text(self) -> str:
        return self._digest.hexdigest()[:16]


def _identity(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _identity(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in NOT_IDENTITY
    }
