"""The load-time check: a two-branch tree must give the logits of plain passes.

The check rejects architectures whose attention does not follow positions and masks (state space,
linear attention, ALiBi). It also finds the form in which a model takes its masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from core.errors import MODEL_FAULTS, ModelLoadError, UnsupportedModelError
from core.events import ModelInfo
from core.models.forward import MaskKind
from core.models.hf_model import HfModel
from core.models.lean_weights import lean_weights
from core.models.protocol import CACHED, Feed, chain

__all__ = [
    "broken_weights",
    "checked_model",
    "difference",
    "layer_kinds",
    "plain_logits",
    "tolerance",
    "tree_error",
    "tree_logits",
]

# The relative difference allowed in float32: the order in which a matrix product adds up depends on
# its number of rows.
FLOAT32_TOLERANCE = 1e-4
# The relative difference allowed in half precision, which rounds in every layer.
HALF_TOLERANCE = 0.06
# The longest sliding window, in tokens, that is checked with a prefix longer than the window.
# Longer prefixes would take too long.
LONGEST_CHECKED_WINDOW = 64
SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention", "attention", "global"})


def checked_model(
    module: Any, info: ModelInfo, faster: Callable[[HfModel, Any], HfModel] | None = None
) -> HfModel:
    """The module's HfModel with the first mask kind whose tree passes agree with plain passes.

    `faster`: takes that model and its module, returns a model with a faster pass; by default
    `_lean_model`. Raises UnsupportedModelError with the architecture and the reasons;
    ModelLoadError if logits are not finite.
    """
    # Chunked or local layers would pass the check, whose prefix is short, but fail on longer texts.
    unsupported = sorted(layer_kinds(module.config) - SUPPORTED_LAYERS)
    reasons = [f"layers of {kind}" for kind in unsupported]
    # A wrong mask kind raises an error or gives a difference; then the next kind is tried.
    for masks in mask_kinds(module.config) if not reasons else ():
        try:
            model = HfModel(module, info, masks)
            error = tree_error(model, module)
        except MODEL_FAULTS as failure:  # the module may not take the cache or mask
            reasons.append(
                f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:200]}"
            )
            continue
        if error <= tolerance(model.dtype):
            return (faster or _lean_model)(model, module)
        if not math.isfinite(error):
            raise broken_weights(info.name)
        reasons.append(f"tree and plain passes differ by {error:.2g}")
    raise UnsupportedModelError(
        f"model {info.name} has architecture {info.architecture} ({'; '.join(reasons)}): "
        "a decoder-only model with softmax attention, full or sliding, and rotary or learned "
        "positions is allowed"
    )


def broken_weights(name: str) -> ModelLoadError:
    """The error for a model whose logits are not finite."""
    return ModelLoadError(
        f"model {name} gives values that are no numbers (NaN or infinite): its weights are broken, "
        "or too large for this dtype; only finite values are allowed"
    )


def _lean_model(model: HfModel, module: Any) -> HfModel:
    """The model with the pass over `lean_weights`, if that passes the tree check; else
    unchanged."""
    weights = lean_weights(module)
    if weights is None:
        return model
    lean = HfModel(module, model.info, model.masks, weights)
    return lean if tree_error(lean, module) <= tolerance(lean.dtype) else model


def layer_kinds(config: Any) -> set[str]:
    """The kinds of attention that the configuration names for its layers; empty if it names
    none."""
    for field in ("layer_types", "attention_layers"):
        if kinds := getattr(config, field, None):
            return set(kinds)
    return set()


def mask_kinds(config: Any) -> list[MaskKind]:
    """The mask kinds to try, the most likely first."""
    window = int(getattr(config, "sliding_window", None) or 0)
    kinds = layer_kinds(config)
    if kinds and "sliding_attention" not in kinds:
        window = 0
    if not window:
        return [MaskKind()]
    is_mixed = len(kinds) > 1
    # A model with both kinds of layers must take a mask for each kind.
    order = (True,) if is_mixed else (False, True)
    return [MaskKind(window, by_layer_type) for by_layer_type in order]


def tolerance(dtype: torch.dtype) -> float:
    """Largest relative difference allowed between a tree pass and plain passes."""
    return FLOAT32_TOLERANCE if dtype in (torch.float32, torch.float64) else HALF_TOLERANCE


def tree_error(model: HfModel, module: Any) -> float:
    """Largest `difference` between the logits of `tree_logits` and the logits of plain passes over
    the same tokens."""
    plain = partial(plain_logits, module, model.device)
    return max(difference(plain(path), logits) for logits, path in tree_logits(model))


@torch.inference_mode()
def tree_logits(model: HfModel) -> list[tuple[torch.Tensor, list[int]]]:
    """Logits (V,) of a tree pass at its two leaves, and of a pass after one branch was committed.
    Each comes with the tokens of a plain pass that must give the same logits. The prefix is longer
    than a sliding window of up to LONGEST_CHECKED_WINDOW tokens."""
    window = model.masks.window
    length = window + 4 if 0 < window <= LONGEST_CHECKED_WINDOW else 6
    ids = _some_ids(model.vocab_size, length + 5)
    prefix, (a, b, c, d, e) = ids[:length], ids[length:]
    row = model.open_row()
    try:
        model.forward([chain(row, prefix, last_only=True)])
        model.commit(row, range(length))
        #      a ── b          a, c: children of the prefix
        #      c ── d ── e
        logits = model.forward([Feed(row, [a, c, b, d, e], [CACHED, CACHED, 0, 1, 3])])[0]
        # The longer branch must also survive its commit: nodes c, d, e.
        model.commit(row, [1, 3, 4])
        after = model.forward([chain(row, [b])])[0]
    finally:
        model.close_row(row)
    return [
        (logits[2], [*prefix, a, b]),
        (logits[4], [*prefix, c, d, e]),
        (after[0], [*prefix, c, d, e, b]),
    ]


@torch.inference_mode()
def plain_logits(module: Any, device: torch.device, path: Sequence[int]) -> torch.Tensor:
    """Logits (V,) after these tokens, from the module itself with its own mask and positions."""
    logits: torch.Tensor = module(input_ids=torch.tensor([path], device=device)).logits[0, -1]
    return logits.float()


def difference(plain: torch.Tensor, logits: torch.Tensor) -> float:
    """Largest difference, relative to the largest absolute logit if that is above 1; infinite if a
    logit is not finite."""
    if not bool(torch.isfinite(plain).all() & torch.isfinite(logits).all()):
        return float("inf")
    return float((logits - plain).abs().max() / plain.abs().max().clamp(min=1.0))


def _some_ids(vocab_size: int, count: int) -> list[int]:
    # Spread over the vocabulary, without the first ids (special tokens).
    return [(7 + 37 * i) % max(1, vocab_size - 5) + min(5, vocab_size - 1) for i in range(count)]
