"""Small GGUF files of a tiny Llama with a byte-level vocabulary, written by the gguf package."""

from pathlib import Path
from typing import Any

import gguf
import torch
from transformers.convert_slow_tokenizer import bytes_to_unicode

from bench.ggml.layout import header_of, tensors_of
from tests.fakes import tiny_module

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {{ message['content'] }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
LETTERS = tuple(bytes_to_unicode().values())
MERGES = ("t h", "th e", "Ġ a", "Ġ the")
TOKENS = (*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES))


def module_of(seed: int = 3, **changes: Any) -> Any:
    """By default, row lengths are multiples of 32, the block size of the quantized types."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": len(TOKENS)}
    return tiny_module("llama", seed, torch.float32, eos_token_id=2, **{**sizes, **changes})


def write_model(
    path: Path,
    kind: str = "F32",
    module: Any = None,
    header: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
    architecture: str = "llama",
) -> Path:
    """`kind`: the GGUF type of matrices; vectors are F32. `header` replaces entries of the module's
    header."""
    module = module or module_of()
    shape = header_of(module)
    writer: Any = gguf.GGUFWriter(path, architecture)
    for name, value in {**shape, "tokenizer_model": "gpt2", **(header or {})}.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(TOKENS))
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in [*tensors_of(module, shape), *(extra or {}).items()]:
        stored = gguf.GGMLQuantizationType["F32" if weight.dim() == 1 else kind]
        raw = gguf.quantize(weight.contiguous().numpy(), stored)
        writer.add_tensor(name, raw, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
