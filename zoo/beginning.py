"""The weights a training run begins with: fresh ones, or a folder's, with layers put in between
where its recipe has more of them than the folder.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.errors import ConfigError
from zoo.evaluate import check_vocabulary
from zoo.models import open_model
from zoo.presets import ModelRecipe, Preset
from zoo.tokens import TokenStore
from zoo.trainer import new_model

__all__ = ["beginning", "deepened", "named"]


def beginning(
    recipe: ModelRecipe, preset: Preset, store: TokenStore, seed: int, start: Path | None
) -> Any:
    """The recipe's model in float32 on the CPU; without a `start`, with the weights of `seed`.
    ConfigError where the folder's sizes are not the recipe's."""
    if start is None:
        return new_model(recipe, preset, store.manifest.vocab_size, seed)
    check_vocabulary(start, store)
    model = open_model(start)
    for field, wished in (
        ("hidden_size", recipe.hidden_size),
        ("intermediate_size", recipe.intermediate_size),
        ("num_attention_heads", recipe.num_heads),
    ):
        found = getattr(model.config, field)
        if found != wished:
            raise ConfigError.of("start", f"{start.name} with {field} {found}", f"{field} {wished}")
    return deepened(model, recipe.num_layers)


@torch.no_grad()
def deepened(model: Any, num_layers: int) -> Any:
    """A Llama-like model with `num_layers` and the logits of `model`, which is used up.

    A new layer is a copy of the one before it that adds nothing: what its attention and its
    feed-forward part put out is multiplied by zero. New ones are spread evenly. ConfigError for
    fewer layers than there are.
    """
    layers: nn.ModuleList = model.model.layers
    old = len(layers)
    if num_layers < old:
        raise ConfigError.of("num_layers", num_layers, f"{old} or more")
    kept = {(number + 1) * num_layers // old - num_layers // old for number in range(old)}
    spread, before = nn.ModuleList(), iter(layers)
    for place in range(num_layers):
        spread.append(next(before) if place in kept else _silent(spread[-1]))
    one: Any
    for place, one in enumerate(spread):
        one.self_attn.layer_idx = place
    model.model.layers = spread
    model.config.num_hidden_layers = num_layers
    return model


def _silent(layer: nn.Module) -> Any:
    made: Any = copy.deepcopy(layer)
    made.self_attn.o_proj.weight.zero_()
    made.mlp.down_proj.weight.zero_()
    return made


def named(folders: Sequence[Path], recipes: Sequence[ModelRecipe]) -> Mapping[str, Path]:
    """Each folder by its name, which is a recipe's; ConfigError for another."""
    names = tuple(recipe.name for recipe in recipes)
    found = {folder.resolve().name: folder for folder in folders}
    for name in found:
        if name not in names:
            raise ConfigError.of("start", name, f"folders of these names: {', '.join(names)}")
    return found
