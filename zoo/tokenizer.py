"""Trains or loads the tokenizer of a family, and encodes texts to 1-D id arrays.

A trained tokenizer is a byte-level BPE with `<|endoftext|>` as id 0, which is prepended to each
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from core.errors import ConfigError
from zoo.corpora import END_OF_TEXT
from zoo.token_bytes import byte_rule

__all__ = [
    "encode",
    "first_differing_id",
    "open_tokenizer",
    "separator",
    "token_id_dtype",
    "train_tokenizer",
    "vocabulary_size",
]


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int
) -> PreTrainedTokenizerBase:
    """A byte-level BPE of at most `vocab_size` tokens learnt from `texts`."""
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        pair=f"{END_OF_TEXT} $A {END_OF_TEXT} $B",
        special_tokens=[(END_OF_TEXT, bpe.token_to_id(END_OF_TEXT))],
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def open_tokenizer(folder: Path, field: str = "tokenizer") -> PreTrainedTokenizerBase:
    """The tokenizer in `folder`. Raises ConfigError, which names `field`, if it cannot be opened,
    is neither byte-level nor with byte fallback, or has no separator token."""
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError.of(field, str(folder), "a folder that holds tokenizer.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError.of(field, str(folder), "a folder that AutoTokenizer opens") from error
    if byte_rule(tokenizer) is None:
        raise ConfigError.of(
            field, str(folder), "a byte-level tokenizer, or one with byte fallback"
        )
    if _separator_token(tokenizer) is None:
        raise ConfigError.of(
            field,
            str(folder),
            "one with an end-of-text token, or that prepends a token to each text",
        )
    return tokenizer


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """The rows that an embedding needs: the highest id + 1."""
    return int(max(tokenizer.get_vocab().values())) + 1


def separator(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id before each text: the token that the tokenizer adds itself, else its end-of-text
    token."""
    first = _separator_token(tokenizer)
    assert first is not None
    return first


def _separator_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    leading = _leading_token(tokenizer)
    return tokenizer.eos_token_id if leading is None else leading


def _leading_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that the tokenizer itself adds before each text; None if it adds none."""
    first: int = tokenizer("a")["input_ids"][0]
    return first if first in tokenizer.all_special_ids else None


def encode(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], batch_size: int = 256
) -> np.ndarray:
    """All documents' ids in one array, (tokens,) of `token_id_dtype`. The `separator` comes before
    each document. The end-of-text token, if there is one, comes after each document, unless it is
    the separator or the tokenizer has added it already."""
    parts = list(_encode_documents(tokenizer, documents, batch_size))
    if not parts:
        return np.zeros(0, dtype=token_id_dtype(vocabulary_size(tokenizer)))
    return np.concatenate(parts)


def _encode_documents(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], batch_size: int
) -> Iterator[np.ndarray]:
    first, last, leading = separator(tokenizer), tokenizer.eos_token_id, _leading_token(tokenizer)
    before = [] if leading is not None else [first]
    id_type = token_id_dtype(vocabulary_size(tokenizer))
    # In batches, since an encoding also holds offsets and strings.
    for start in range(0, len(documents), batch_size):
        batch = list(documents[start : start + batch_size])
        for encoding in tokenizer.backend_tokenizer.encode_batch(batch):
            ids = [*before, *encoding.ids]
            is_terminated = last in (None, first) or ids[-1] == last
            yield np.asarray(ids if is_terminated else [*ids, last], dtype=id_type)


def token_id_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The type in which ids of a vocabulary of this size are stored: two bytes or four."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def first_differing_id(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> int | None:
    """The lowest id that is not the same token in both; None if there is none."""
    # (token, id) pairs in exactly one of the two.
    differ = one.get_vocab().items() ^ other.get_vocab().items()
    return min((token_id for _, token_id in differ), default=None)
