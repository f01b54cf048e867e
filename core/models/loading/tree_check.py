"""The load-time check: a two-branch tree must give the logits that plain passes give.

It finds architectures whose attention is not position- and mask-driven (state space, linear
attention, ALiBi) whatever they are called, and the way a model wants its masks.
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
from core.models.fusing import lean_weights
from core.models.hf_model import HfModel
from core.models.protocol import Feed, chain
from core.trees.tree import ROOT

__all__ = [
    "checked_model",
    "difference",
    "layer_kinds",
    "plain_logits",
    "tolerance",
    "tree_error",
    "tree_logits",
]

FLOAT32_TOLERANCE = 1e-4
# Rounding of half precisions through a whole model; a wrong mask is tens of times larger.
HALF_TOLERANCE = 0.06
LONGEST_CHECKED_WINDOW = 64
KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention", "attention", "global"})


def checked_model(
    module: Any, info: ModelInfo, faster: Callable[[HfModel, Any], HfModel] | None = None
) -> HfModel:
    """The model behind LanguageModel, with the first mask kind whose tree passes are exact.

    `faster`: makes a model with a faster pass of the one through the module, by default on fused
    weights. Raises UnsupportedModelError naming the architecture and what was seen; ModelLoadError
    where the weights give no numbers.
    """
    unknown_layers = [
        f"layers of {kind}" for kind in sorted(layer_kinds(module.config) - KNOWN_LAYERS)
    ]
    # Chunked or local layers would pass the check, whose prefix is short, and fail past it.
    # A wrong kind of mask shows as an error or as a difference; the next one is tried.
    for masks in mask_kinds(module.config) if not unknown_layers else ():
        try:
            model = HfModel(module, info, masks)
            error = tree_error(model, module)
        except MODEL_FAULTS as failure:  # without our kind of cache, mask or position ids
            unknown_layers.append(
                f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:200]}"
            )
            continue
        if error <= tolerance(model.dtype):
            return (faster or _leanest)(model, module)
        if not math.isfinite(error):
            raise ModelLoadError(
                f"model {info.name} gives values that are no numbers (NaN or infinite): its "
                "weights are broken, or too large for this dtype; whole weights are allowed"
            )
        unknown_layers.append(f"tree and plain passes differ by {error:.2g}")
    raise UnsupportedModelError(
        f"model {info.name} has architecture {info.architecture} ({'; '.join(unknown_layers)}): "
        "a decoder-only model with softmax attention, full or sliding, and rotary or learned "
        "positions is allowed"
    )


def _leanest(model: HfModel, module: Any) -> HfModel:
    """The same model by the lean pass, where its kind has one and its tree passes are exact too."""
    weights = lean_weights(module)
    if weights is None:
        return model
    # Making it has turned the module's weights into views: no second copy is in memory.
    lean = HfModel(module, model.info, model.masks, weights)
    return lean if tree_error(lean, module) <= tolerance(lean.dtype) else model


def layer_kinds(config: Any) -> set[str]:
    """What the configuration calls its layers' attention; empty where it does not say."""
    for field in ("layer_types", "attention_layers"):
        if kinds := getattr(config, field, None):
            return set(kinds)
    return set()


def mask_kinds(config: Any) -> list[MaskKind]:
    """The mask kinds to try, the likeliest first."""
    window = int(getattr(config, "sliding_window", None) or 0)
    kinds = layer_kinds(config)
    if kinds and "sliding_attention" not in kinds:
        window = 0
    if not window:
        return [MaskKind()]
    mixed = len(kinds) > 1
    # A model with both kinds of layers must take a mask for each.
    order = (True,) if mixed else (False, True)
    return [MaskKind(window, by_layer_type) for by_layer_type in order]


def tolerance(dtype: torch.dtype) -> float:
    """Largest relative difference allowed between a tree pass and plain passes."""
    return FLOAT32_TOLERANCE if dtype in (torch.float32, torch.float64) else HALF_TOLERANCE


def tree_error(model: HfModel, module: Any) -> float:
    """Largest difference of logits between one tree pass and plain passes of its two branches.

    Relative to the largest logit, where that is above 1. The prefix is longer than a short window.
    """
    plain = partial(plain_logits, module, model.device)
    return max(difference(plain(path), got) for got, path in tree_logits(model))


@torch.inference_mode()
def tree_logits(model: HfModel) -> list[tuple[torch.Tensor, list[int]]]:
    """Logits (V,) of a tree pass at its two leaves and of a pass after one branch was committed,
    each with the tokens of a plain pass that must give the same."""
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
        logits = model.forward([Feed(row, [a, c, b, d, e], [ROOT, ROOT, 0, 1, 3])])[0]
        # The longer branch must also survive its commit.
        # Node numbers of the feed above: c, d, e.
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
    """Logits (V,) after these tokens by the module itself. The plain pass makes its own mask and
    positions: it shares nothing with the pass under test."""
    logits: torch.Tensor = module(input_ids=torch.tensor([path], device=device)).logits[0, -1]
    return logits.float()


def difference(plain: torch.Tensor, got: torch.Tensor) -> float:
    """Relative to the largest logit, where that is above 1; infinite where one is no number."""
    if not bool(torch.isfinite(plain).all() & torch.isfinite(got).all()):
        return float("inf")
    return float((got - plain).abs().max() / plain.abs().max().clamp(min=1.0))


def _some_ids(vocab_size: int, count: int) -> list[int]:
    # Spread over the vocabulary, none repeated, the first ids (special tokens) left out.
    return [(7 + 37 * i) % max(1, vocab_size - 5) + min(5, vocab_size - 1) for i in range(count)]
