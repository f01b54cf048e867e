"""How many bytes of text each token stands for, which makes losses of different tokenizers
comparable.

Two kinds of tokenizers are handled: byte-level (GPT-2, Llama 3, Qwen), where each character of a
token is one byte, and byte fallback (Llama 2, Mistral, Gemma), where U+2581 is a space and `<0x0A>`
a byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

__all__ = ["byte_lengths", "byte_rule"]

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACE = "\u2581"


def byte_lengths(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """The number of UTF-8 bytes of each id, int64 (highest id + 1,); 0 for special tokens and
    unused ids. `byte_rule` of the tokenizer must not be None."""
    length = byte_rule(tokenizer)
    assert length is not None
    vocabulary = tokenizer.get_vocab()
    lengths = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
    for token, token_id in vocabulary.items():
        lengths[token_id] = length(token)
    for token_id, added in tokenizer.added_tokens_decoder.items():
        lengths[token_id] = 0 if added.special else len(added.content.encode())
    lengths[list(tokenizer.all_special_ids)] = 0
    return lengths


def byte_rule(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], int] | None:
    """A function from a token to its number of bytes; None for a tokenizer of another kind."""
    decoder = tokenizer.backend_tokenizer.decoder
    # A decoder's pickled state is its JSON. The state of the whole tokenizer would be megabytes.
    kinds = set(_kinds(json.loads(decoder.__getstate__()))) if decoder else set()
    if "ByteLevel" in kinds:
        return len
    return _by_fallback if "ByteFallback" in kinds else None


def _kinds(decoder: dict[str, Any]) -> Iterator[str]:
    yield decoder.get("type", "")
    for one in decoder.get("decoders", ()):
        yield from _kinds(one)


def _by_fallback(token: str) -> int:
    return 1 if _BYTE.fullmatch(token) else len(token.replace(_SPACE, " ").encode())
