"""The weights that a training run starts from: a folder's weights, perhaps with more layers; or
random weights, perhaps with embeddings projected from another model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.errors import ConfigError
from zoo.evaluate import check_vocabulary
from zoo.models import open_model, weights_id
from zoo.presets import ModelRecipe, Preset
from zoo.tokens import TokenStore
from zoo.trainer import new_model

__all__ = [
    "FRESH",
    "InitialWeights",
    "initial_model",
    "deepen",
    "folders_by_name",
    "narrow_embeddings",
]


@dataclass(frozen=True, slots=True)
class InitialWeights:
    """`folder`: the folder of weights to start from; None: random weights. `embeddings`: the folder
    of another model, whose projected embeddings replace the random embeddings; None: the embeddings
    stay random. `field`: the argument that gave `folder`, for errors."""

    folder: Path | None = None
    embeddings: Path | None = None
    field: str = "start"

    def identity(self) -> dict[str, str]:
        """Fields of a checkpoint's identity; only a checkpoint with equal fields is resumed."""
        if self.folder is not None:
            return {"start": weights_id(self.folder)}
        return {} if self.embeddings is None else {"embeddings": weights_id(self.embeddings)}


FRESH = InitialWeights()


def initial_model(
    recipe: ModelRecipe, preset: Preset, store: TokenStore, seed: int, start: InitialWeights = FRESH
) -> Any:
    """The recipe's model in float32 on the CPU; `seed` determines random weights. Raises
    ConfigError if the folder's model does not fit the recipe, VocabMismatchError if a folder has
    another tokenizer than `store`."""
    size = store.manifest.vocab_size
    if start.folder is None:
        fresh: Any = new_model(recipe, preset, size, seed)
        if start.embeddings is not None:
            check_vocabulary(start.embeddings, store, "embeddings")
            wide_model = open_model(start.embeddings, "embeddings", size)
            wide = wide_model.get_input_embeddings().weight
            embeddings = fresh.get_input_embeddings().weight
            embeddings.data = narrow_embeddings(wide.detach(), embeddings.detach())
        return fresh
    check_vocabulary(start.folder, store, start.field)
    model = open_model(start.folder, start.field, size)
    for field, expected in (
        ("hidden_size", recipe.hidden_size),
        ("intermediate_size", recipe.intermediate_size),
        ("num_attention_heads", recipe.num_heads),
    ):
        value = getattr(model.config, field, expected)  # some architectures lack the field
        if value != expected:
            description = f"{start.folder.name} with {field} {value}"
            raise ConfigError.of(start.field, description, f"{field} {expected}")
    return deepen(model, recipe.num_layers)


def narrow_embeddings(wide: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Embeddings of the shape of `fresh` (tokens, width) that approximate the dot products between
    rows of `wide` (tokens, wide width) best: the principal components of `wide`, not centred. If
    `wide` is narrower than `fresh`, the remaining columns are taken from `fresh`."""
    squares = wide.T @ wide  # (wide width, wide width): independent of the number of tokens
    directions = torch.linalg.eigh(squares).eigenvectors.flip(-1)[:, : fresh.shape[1]]
    narrow = wide @ directions
    return torch.cat([narrow, fresh[:, narrow.shape[1] :]], 1)


@torch.no_grad()
def deepen(model: Any, num_layers: int) -> Any:
    """A model with `num_layers` layers and the same logits. If layers are added, `model` must be
    Llama-like, and it is changed in place. Raises ConfigError if `model` has more layers.

    A new layer is a copy of the layer before it, with output projections of zero, so that it adds
    nothing to the residual stream. New layers are spread evenly.
    """
    num_old = model.config.num_hidden_layers
    if num_layers < num_old:
        raise ConfigError.of("num_layers", num_layers, f"{num_old} or more")
    if num_layers == num_old:
        return model
    # The indices of the old layers in the new model: evenly spread, from 0.
    per_old = num_layers // num_old
    old_indices = {(number + 1) * num_layers // num_old - per_old for number in range(num_old)}
    old_layers, layers = iter(model.model.layers), nn.ModuleList()
    for index in range(num_layers):
        layers.append(next(old_layers) if index in old_indices else _zero_output_copy(layers[-1]))
    layer: Any
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = index  # its index in the KV cache
    model.model.layers = layers
    kinds = getattr(model.config, "layer_types", None)
    if kinds:  # a new layer has the type of the layer that it copies
        sources = [sum(old <= index for old in old_indices) - 1 for index in range(num_layers)]
        model.config.layer_types = [kinds[number] for number in sources]
    model.config.num_hidden_layers = num_layers
    return model


def _zero_output_copy(layer: nn.Module) -> Any:
    layer_copy: Any = copy.deepcopy(layer)
    layer_copy.self_attn.o_proj.weight.zero_()
    layer_copy.mlp.down_proj.weight.zero_()
    return layer_copy


def folders_by_name(folders: Sequence[Path], recipes: Sequence[ModelRecipe]) -> Mapping[str, Path]:
    """The folders by name. Raises ConfigError for a name that no recipe has."""
    names = tuple(recipe.name for recipe in recipes)
    by_name = {folder.resolve().name: folder for folder in folders}
    for name in by_name:
        if name not in names:
            raise ConfigError.of("start", name, f"folders of these names: {', '.join(names)}")
    return by_name
