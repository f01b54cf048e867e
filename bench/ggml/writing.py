"""Writing a model as a GGUF file, which llama.cpp reads; needs the package `gguf`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from bench.ggml.layout import ARCHITECTURE, Header, header_of, tensors_of

__all__ = ["write_gguf"]


def write_gguf(module: Any, path: Path) -> Header:
    """Writes a transformers module of float32 or bfloat16 with its weights as they are. Token ids
    are fed and read as numbers, so the file has no vocabulary but its size.

    Raises ImportError without the package, UnsupportedModelError for another model, OSError.
    """
    gguf: Any = importlib.import_module("gguf")
    header = header_of(module)
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    try:
        _describe(writer, header)
        for name, weight in tensors_of(module, header):
            if weight.dtype == torch.bfloat16:
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


def _describe(writer: Any, header: Header) -> None:
    writer.add_context_length(header.context)
    writer.add_vocab_size(header.vocabulary)
    writer.add_embedding_length(header.hidden)
    writer.add_block_count(header.layers)
    writer.add_feed_forward_length(header.ffn)
    writer.add_head_count(header.heads)
    writer.add_head_count_kv(header.kv_heads)
    writer.add_key_length(header.head_size)
    writer.add_value_length(header.head_size)
    writer.add_rope_dimension_count(header.head_size)
    writer.add_layer_norm_rms_eps(header.norm_eps)
    writer.add_rope_freq_base(header.rope_base)
    writer.add_tokenizer_model("no_vocab")
