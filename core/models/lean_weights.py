"""LeanWeights from a Llama-like transformers module. The matrices of QKV, and of gate and up, are
concatenated. The module's matrices become views of the result: no matrix is stored twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.models.lean import LeanLayer, LeanWeights

__all__ = ["ARCHITECTURES", "adopt", "lean_layer", "lean_weights", "stored_wide"]

# Candidates: `_has_known_parts` decides.
ARCHITECTURES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
HEAD_NORMS = frozenset({"q_norm", "k_norm"})
MLP = frozenset({"gate_proj", "up_proj", "down_proj", "act_fn"})
# Rotary embeddings that depend on the length of the text.
LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})


def lean_weights(module: Any) -> LeanWeights | None:
    """The module's weights; None if the module is not supported."""
    if type(module).__name__ not in ARCHITECTURES or not _has_known_parts(module):
        return None
    body, config = module.model, module.config
    attention = body.layers[0].self_attn
    wide = stored_wide(body.embed_tokens.weight)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(body.layers)
    return LeanWeights(
        embedding=body.embed_tokens.weight.detach(),
        layers=tuple(
            lean_layer(layer, kind, wide) for layer, kind in zip(body.layers, kinds, strict=True)
        ),
        norm=body.norm.weight.detach(),
        # A view: a tied head stays tied.
        head=module.lm_head.weight.detach().t(),
        inverse=body.rotary_emb.inv_freq.detach().float(),
        rope_scale=float(getattr(body.rotary_emb, "attention_scaling", 1.0)),
        eps=float(config.rms_norm_eps),
        heads=int(config.num_attention_heads),
        kv_heads=int(config.num_key_value_heads),
        head_size=int(attention.head_dim),
    )


def _has_known_parts(module: Any) -> bool:
    """Whether LeanWeights represent every part of the module."""
    body, config = module.model, module.config
    # The architecture's name is not enough: a patched model may have other modules.
    parts = {"embed_tokens", "layers", "norm", "rotary_emb"}
    if set(body._modules) != parts or module.lm_head.bias is not None:
        return False
    if config.hidden_act not in ("silu", "swish"):
        return False
    if getattr(body.rotary_emb, "rope_type", "default") in LENGTH_DEPENDENT_ROPE:
        return False
    names = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    return all(
        set(layer._modules) == names
        and set(layer.self_attn._modules) in (ATTENTION, ATTENTION | HEAD_NORMS)
        and set(layer.mlp._modules) == MLP
        and all(type(part) is torch.nn.Linear for part in _linears(layer))
        for layer in body.layers
    )


def _linears(layer: Any) -> list[Any]:
    attention, mlp = layer.self_attn, layer.mlp
    return [*(getattr(attention, n) for n in ATTENTION), mlp.gate_proj, mlp.up_proj, mlp.down_proj]


def stored_wide(weight: torch.Tensor) -> bool:
    """Whether to store matrices row-major as (inputs, outputs): faster for one token in float32 and
    float64 on a CPU."""
    return weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)


def lean_layer(layer: Any, kind: str, wide: bool) -> LeanLayer:
    """A layer's weights. `wide`: see `stored_wide`."""
    attention, mlp = layer.self_attn, layer.mlp
    qkv, qkv_bias = _concatenate([attention.q_proj, attention.k_proj, attention.v_proj], wide)
    out, out_bias = _concatenate([attention.o_proj], wide)
    gate_up, gate_up_bias = _concatenate([mlp.gate_proj, mlp.up_proj], wide)
    down, down_bias = _concatenate([mlp.down_proj], wide)
    q_norm, k_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    return LeanLayer(
        # Norms share the module's memory; concatenated biases are small copies.
        input_norm=layer.input_layernorm.weight.detach(),
        qkv=qkv,
        qkv_bias=qkv_bias,
        q_norm=q_norm.weight.detach() if q_norm is not None else None,
        k_norm=k_norm.weight.detach() if k_norm is not None else None,
        out=out,
        out_bias=out_bias,
        post_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        gate_up_bias=gate_up_bias,
        down=down,
        down_bias=down_bias,
        sliding=kind == "sliding_attention",
    )


@torch.no_grad()
def adopt(module: Any, weights: LeanWeights) -> None:
    """Makes the module's parameters views of these weights, except for biases and head norms."""
    body = module.model
    body.embed_tokens.weight.data = weights.embedding
    module.lm_head.weight.data = weights.head.t()
    body.norm.weight.data = weights.norm
    for layer, lean in zip(body.layers, weights.layers, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        layer.input_layernorm.weight.data = lean.input_norm
        layer.post_attention_layernorm.weight.data = lean.post_norm
        _divide(lean.qkv, [attention.q_proj, attention.k_proj, attention.v_proj])
        _divide(lean.out, [attention.o_proj])
        _divide(lean.gate_up, [mlp.gate_proj, mlp.up_proj])
        _divide(lean.down, [mlp.down_proj])


def _divide(matrix: torch.Tensor, linears: Sequence[Any]) -> None:
    """Each linear's weight becomes a view of the concatenated matrix."""
    first = 0
    for linear in linears:
        count = len(linear.weight)
        # `data` keeps the Parameter object.
        linear.weight.data = matrix[:, first : first + count].t()
        first += count


@torch.no_grad()
def _concatenate(linears: Sequence[Any], wide: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One matrix (inputs, all outputs) for several linears of the same inputs, and their biases or
    None. Each linear's weight becomes a view of the matrix. `wide`: row-major."""
    weights = torch.cat([linear.weight for linear in linears])
    matrix = weights.t().contiguous() if wide else weights.t()
    # Frees the originals now: loading needs memory for one more layer, not for a second model.
    _divide(matrix, linears)
    biases = [linear.bias for linear in linears]
    if all(bias is None for bias in biases):
        return matrix, None
    parts = [
        # 0 for linears without a bias.
        torch.zeros(len(linear.weight), dtype=matrix.dtype, device=matrix.device)
        if bias is None
        else bias.detach()
        for linear, bias in zip(linears, biases, strict=True)
    ]
    return matrix, torch.cat(parts)
