"""A grown transformers module, and the outline of one: names and shapes without weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from bench.grown.shape import Plan, Shape
from bench.grown.weights import OWNERS, Filler
from core.errors import UnsupportedModelError

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def shape_of(module: Any) -> Shape:
    """The sizes of a transformers module, which need hold no weights (device `meta`).

    Raises UnsupportedModelError where it is of another architecture, or has parts of its own.
    """
    kind = type(module).__name__
    strange = sorted(name for name, _ in module.named_parameters() if not _is_handled(name))
    if kind not in ARCHITECTURES or strange:
        has = f" with {strange[0]}" if kind in ARCHITECTURES else ""
        raise UnsupportedModelError(
            f"model to grow has architecture {kind}{has}: one of {', '.join(ARCHITECTURES)}, plain "
            "weights and biases, is allowed"
        )
    config, layer = module.config, module.model.layers[0]
    attention, mlp = layer.self_attn, layer.mlp
    return Shape(
        hidden=int(config.hidden_size),
        ffn=int(config.intermediate_size),
        layers=int(config.num_hidden_layers),
        heads=int(config.num_attention_heads),
        kv_heads=int(config.num_key_value_heads),
        head_size=int(attention.head_dim),
        vocabulary=int(module.model.embed_tokens.weight.shape[0]),
        tied=bool(config.tie_word_embeddings),
        qkv_bias=attention.q_proj.bias is not None,
        out_bias=attention.o_proj.bias is not None,
        ffn_bias=mlp.down_proj.bias is not None,
        head_norms=hasattr(attention, "q_norm"),
    )


def _is_handled(name: str) -> bool:
    owner, leaf = f".{name}".rsplit(".", 2)[-2:]
    return owner in OWNERS and leaf in ("weight", "bias")


def outline(module: Any, plan: Plan, dtype: torch.dtype) -> Any:
    """The grown module before it has weights: they are on the device `meta`. Its rotation is a copy
    of the small module's, so that old heads are rotated as before."""
    with torch.device("meta"):
        large = type(module)(_config(module, plan, dtype))
    large.tie_weights()
    large.model.rotary_emb = copy.deepcopy(module.model.rotary_emb)
    large.generation_config = copy.deepcopy(module.generation_config)
    return large.eval()


def _config(module: Any, plan: Plan, dtype: torch.dtype) -> Any:
    config, shape = copy.deepcopy(module.config), plan.large
    config.hidden_size = shape.hidden
    config.intermediate_size = shape.ffn
    config.num_hidden_layers = shape.layers
    config.num_attention_heads = shape.heads
    config.num_key_value_heads = shape.kv_heads
    config.rms_norm_eps = config.rms_norm_eps / plan.factor
    config.dtype = dtype
    config.architectures = [type(module).__name__]
    kinds = getattr(config, "layer_types", None)
    if kinds:
        config.layer_types = [kinds[i % len(kinds)] for i in range(shape.layers)]
    return config


def sizes(large: Any) -> dict[str, torch.Size]:
    """The shape of every parameter of an outline, a tied head's left out."""
    return {name: parameter.shape for name, parameter in large.named_parameters()}


def tensors(
    module: Any, large: Any, plan: Plan, seed: int, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter of the outline `large`, made from `module`'s, one at a time, so that a caller
    that writes each to disk needs memory for one."""
    spread = float(module.config.initializer_range)
    filler = Filler(plan, seed, spread, dtype, next(module.parameters()).device)
    small = dict(module.named_parameters())
    for name, shape in sizes(large).items():
        yield name, filler.tensor(name, shape, small.get(name))


def grow_module(module: Any, plan: Plan, seed: int = 0, dtype: torch.dtype | None = None) -> Any:
    """A module of the plan's large shape with `module`'s logits, on its device; `module` stays as
    it is. Weights are of its dtype unless another is given."""
    dtype = dtype or next(module.parameters()).dtype
    large = outline(module, plan, dtype)
    for name, made in tensors(module, large, plan, seed, dtype):
        owner, _, leaf = name.rpartition(".")
        setattr(large.get_submodule(owner), leaf, torch.nn.Parameter(made, requires_grad=False))
    large.tie_weights()
    return large
