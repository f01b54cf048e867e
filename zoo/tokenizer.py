"""The byte-level BPE tokenizer of a family: trained, opened, and the bytes each token stands for.

`<|endoftext|>` is id 0 and stands before each text. Knows nothing of domains or token files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from core.errors import ConfigError
from zoo.corpora import END_OF_TEXT

__all__ = ["byte_lengths", "encode", "first_difference", "open_tokenizer", "train_tokenizer"]

MAX_VOCAB_SIZE = 1 << 16  # token files hold two bytes a token


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int
) -> PreTrainedTokenizerBase:
    """A byte-level BPE of at most `vocab_size` tokens learnt from `texts`; any text can be encoded
    with it.
    """
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


def open_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in `folder`; ConfigError where it is none that the zoo can use."""
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError.of("tokenizer", str(folder), "a folder that holds tokenizer.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "tokenizer", str(folder), "a folder that AutoTokenizer opens"
        ) from error
    _check(tokenizer, folder)
    return tokenizer


def _check(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    decoder = tokenizer.backend_tokenizer.decoder
    if not isinstance(decoder, decoders.ByteLevel):
        raise ConfigError.of("tokenizer", str(folder), "a byte-level tokenizer")
    if len(tokenizer) > MAX_VOCAB_SIZE:
        raise ConfigError.of(
            "tokenizer", str(folder), f"at most {MAX_VOCAB_SIZE} tokens, not {len(tokenizer)}"
        )
    if tokenizer("a")["input_ids"][:1] != [0] or tokenizer.convert_ids_to_tokens(0) != END_OF_TEXT:
        raise ConfigError.of(
            "tokenizer", str(folder), f"one that puts {END_OF_TEXT} (id 0) before each text"
        )


def encode(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], at_once: int = 256
) -> np.ndarray:
    """All documents' ids in one row, `<|endoftext|>` before each: uint16, (tokens,)."""
    parts = list(_encoded(tokenizer, documents, at_once))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint16)


def _encoded(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], at_once: int
) -> Iterator[np.ndarray]:
    # In portions: an encoding holds offsets and strings too, a hundred times the size of its ids.
    for start in range(0, len(documents), at_once):
        portion = list(documents[start : start + at_once])
        for encoding in tokenizer.backend_tokenizer.encode_batch(portion):
            yield np.asarray(encoding.ids, dtype=np.uint16)


def byte_lengths(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """The UTF-8 bytes each id stands for, 0 for special tokens: int64, (vocabulary,).

    In a byte-level vocabulary each character of a token stands for one byte.
    """
    lengths = np.zeros(len(tokenizer), dtype=np.int64)
    for token, token_id in tokenizer.get_vocab().items():
        lengths[token_id] = len(token)
    lengths[list(tokenizer.all_special_ids)] = 0
    return lengths


def first_difference(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> int | None:
    """The first id that the two read differently; None where there is none."""
    for token_id in range(max(len(one), len(other))):
        if _token(one, token_id) != _token(other, token_id):
            return token_id
    return None


def _token(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str | None:
    return str(tokenizer.convert_ids_to_tokens(token_id)) if token_id < len(tokenizer) else None
