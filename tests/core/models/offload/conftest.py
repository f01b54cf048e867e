"""Fixtures for the tests of offloaded LLMs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from core.models import fastest
from core.models.lean import LeanForward
from core.models.native.forward import CompiledForward
from tests.core.models.offload.streamed import LAYERS, Folder
from tests.fakes import tiny_module, word_tokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "layers"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def save(family: str = "llama", dtype: Any = torch.float32, **changes: Any) -> Path:
        # The vocabulary has room for a token that transformers' tokenizer for Qwen 2 adds.
        sizes = {"num_hidden_layers": LAYERS, "vocab_size": 72}
        module = tiny_module(family, 3, dtype, **sizes, **changes)
        module.save_pretrained(tmp_path / "llm", max_shard_size="60KB")
        word_tokenizer(64).save_pretrained(tmp_path / "llm")
        return tmp_path / "llm"

    return save


@pytest.fixture(params=["compiled", "lean"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    if request.param == "compiled":
        return CompiledForward
    monkeypatch.setattr(fastest, "compile_forward", lambda *_: None)
    return LeanForward
