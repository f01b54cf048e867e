"""Tiny model folders, and the error messages of refused folders."""

from pathlib import Path
from typing import Any

import pytest
import torch

from core import load_models
from tests.fakes import tiny_module, word_tokenizer


def save_tiny_model(folder: Path, vocab: int = 64, tokenizer: Any = None, **options: Any) -> Path:
    module = tiny_module("llama", seed=1, dtype=torch.float32, vocab_size=vocab)
    module.save_pretrained(folder, **options)
    (tokenizer or word_tokenizer(vocab)).save_pretrained(folder)
    return folder


def refusal_of(kind: type[Exception], llm: Path | str, *ssms: Path | str) -> str:
    with pytest.raises(kind) as caught:
        load_models(str(llm), [str(ssm) for ssm in ssms])
    message = str(caught.value)
    assert message.isprintable() and len(message) < 1000
    return message
