"""Writes a Llama-like model as a GGUF file for llama.cpp."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from core.errors import UnsupportedModelError

ARCHITECTURE = "llama"
KINDS = ("LlamaForCausalLM", "MistralForCausalLM")
# llama.cpp's names of the tensors outside layers, and of a layer's tensors.
MODEL_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LAYER = "model.layers."


def header_of(module: Any) -> dict[str, Any]:
    """Header fields, named like GGUFWriter's `add_` methods. Raises UnsupportedModelError if the
    architecture is not in KINDS, or if its config is not a plain Llama's."""
    kind, config = type(module).__name__, module.config
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"model to convert has architecture {kind}: one of {', '.join(KINDS)} is allowed"
        )
    rope = dict(getattr(config, "rope_parameters", None) or {})
    strange = {
        "rope_type": rope.get("rope_type", "default") != "default",
        "hidden_act": config.hidden_act != "silu",
        "sliding_window": getattr(config, "sliding_window", None) is not None,
    }
    for field, is_strange in strange.items():
        if is_strange:
            raise UnsupportedModelError(
                f"model to convert has a {field} of its own: a plain Llama is allowed"
            )
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return {
        "context_length": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": heads,
        "head_count_kv": config.num_key_value_heads,
        "key_length": head_size,
        "value_length": head_size,
        "rope_dimension_count": head_size,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": float(rope.get("rope_theta", 10000.0)),
        # Callers use token ids only.
        "tokenizer_model": "no_vocab",
    }


def ends_of(module: Any) -> frozenset[int]:
    """The ids of the tokens that end a text."""
    ends = module.generation_config.eos_token_id
    return frozenset((ends,) if isinstance(ends, int) else ends or ())


def tensors_of(module: Any, header: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight with llama.cpp's name. A tied head is left out. Raises UnsupportedModelError for
    a weight that a plain Llama does not have."""
    for name, parameter in module.named_parameters():
        llama_cpp_name, weight = _llama_cpp_name(name), parameter.detach()
        if llama_cpp_name.endswith("attn_q.weight"):
            weight = interleaved_rows(weight, header["head_count"])
        elif llama_cpp_name.endswith("attn_k.weight"):
            weight = interleaved_rows(weight, header["head_count_kv"])
        # llama.cpp reads tensors of one dimension in float32 only.
        yield llama_cpp_name, weight.float() if weight.dim() == 1 else weight


def interleaved_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows [heads * size, hidden] in the order of llama.cpp's rotary embedding. llama.cpp rotates a
    head's channels 2 i and 2 i + 1 as a pair; transformers rotates channels i and i + size / 2."""
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, -1)
    return halves.transpose(1, 2).reshape(weight.shape)


def _llama_cpp_name(name: str) -> str:
    if name in MODEL_TENSORS:
        return MODEL_TENSORS[name]
    layer, _, rest = name.removeprefix(LAYER).partition(".")
    owner, _, leaf = rest.rpartition(".")
    if not name.startswith(LAYER) or owner not in LAYER_TENSORS or leaf != "weight":
        raise UnsupportedModelError(
            f"model to convert has the weight {name}: a plain Llama's weights are allowed"
        )
    return f"blk.{layer}.{LAYER_TENSORS[owner]}.weight"


def write_gguf(module: Any, path: Path) -> dict[str, Any]:
    """Writes a transformers module, not quantized, and returns the file's header. The file has no
    vocabulary. Raises ImportError without the package `gguf`, UnsupportedModelError for a model
    that is no plain Llama, OSError if the file cannot be written."""
    gguf: Any = importlib.import_module("gguf")
    header = header_of(module)
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    try:
        for name, value in header.items():
            getattr(writer, f"add_{name}")(value)
        for name, weight in tensors_of(module, header):
            if weight.dtype == torch.bfloat16:
                # numpy has no bfloat16: the bytes are passed on.
                raw = weight.contiguous().view(torch.uint8).numpy()
                writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                writer.add_tensor(name, weight.contiguous().numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return header
