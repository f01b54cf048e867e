"""Fakes of llama-cpp-python and gguf, which record their arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class FakeWriter:
    """The methods of GGUFWriter that bench calls. `written`: metadata and tensors by file name."""

    written: dict[str, dict[str, Any]] = {}

    def __init__(self, path: Path, architecture: str) -> None:
        self.path = Path(path)
        self.kept: dict[str, Any] = {"architecture": architecture}
        self.closed = False

    def add_tensor(self, name: str, raw: Any, raw_dtype: Any = None) -> None:
        self.kept[name] = (raw, raw_dtype)

    def write_header_to_file(self) -> None:
        self.path.write_text("header")

    def write_kv_data_to_file(self) -> None:
        pass

    def write_tensors_to_file(self) -> None:
        FakeWriter.written[self.path.name] = self.kept

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("add_"), name
        return lambda value: self.kept.__setitem__(name, value)


class FakeLlama:
    """Generates the last given id plus 1, plus 2 and so on, without end. `calls`: recorded
    calls in order; `opened`: all instances."""

    opened: list[FakeLlama] = []

    def __init__(self, path: str, **options: Any) -> None:
        assert Path(path).read_text() == "header", "the file exists while it is opened"
        self.path, self.options = path, options
        self.draft_model: Any = None
        self.calls: list[tuple[str, Any]] = []
        FakeLlama.opened.append(self)

    def n_ctx(self) -> int:
        return int(self.options["n_ctx"])

    def reset(self) -> None:
        self.calls.append(("reset", None))

    def set_seed(self, seed: int) -> None:
        self.calls.append(("seed", seed))

    def generate(self, tokens: list[int], **options: Any) -> Iterator[int]:
        self.calls.append(("generate", options))
        if self.draft_model is not None:
            self.calls.append(("drafted", self.draft_model(np.array(tokens, np.intc)).tolist()))
        last = tokens[-1]
        while True:
            last += 1
            yield last


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes both fakes importable."""
    FakeLlama.opened, FakeWriter.written = [], {}
    gguf, llama, speculative = map(ModuleType, ("gguf", "llama_cpp", "llama_cpp.llama_speculative"))
    kinds = SimpleNamespace(BF16="bf16")
    gguf.__dict__.update(GGUFWriter=FakeWriter, GGMLQuantizationType=kinds)
    llama.__dict__.update(
        Llama=FakeLlama, GGML_TYPE_F32=0, GGML_TYPE_F16=1, __version__="1.2.3", __path__=[]
    )
    speculative.__dict__["LlamaPromptLookupDecoding"] = lambda longest, count: (
        lambda ids, **options: ids[-count:]
    )
    for module in (gguf, llama, speculative):
        monkeypatch.setitem(sys.modules, module.__name__, module)
