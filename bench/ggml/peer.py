"""llama.cpp with SpecScope's weights, threads and token ids, through the package
llama-cpp-python."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.ggml.layout import ends_of, write_gguf
from core.errors import SpecScopeError

PACKAGES = ("llama_cpp", "gguf")
COMMAND = "pip install llama-cpp-python gguf"

# The longest n-gram to look up; the package's default.
LONGEST_MATCH = 2
Drafting = Callable[..., Any]
"""llama-cpp-python's draft model: token ids so far -> ids that may follow."""


class LlamaCpp:
    """A transformers module in llama.cpp's own generation loop. `assistants`: by name, the
    transformers modules that may draft. `file`: a GGUF file to load, with its quantization,
    instead of the module's weights.

    Raises ImportError if llama.cpp's packages are missing, UnsupportedModelError if a model is no
    plain Llama, OSError if a file cannot be written, ValueError if llama.cpp cannot load the files.
    """

    def __init__(
        self, module: Any, assistants: Mapping[str, Any], threads: int, file: Path | None = None
    ) -> None:
        self._package: Any = importlib.import_module("llama_cpp")
        self._threads = threads
        with tempfile.TemporaryDirectory(
            prefix="specscope-gguf-", ignore_cleanup_errors=True
        ) as folder:
            path = file or Path(folder) / "llm.gguf"
            context = module.config.max_position_embeddings
            header = write_gguf(module, path) if file is None else {"context_length": context}
            self._ends = ends_of(module)
            # Both instances map one file into memory. Verifying drafts needs every token's logits.
            self._plain = self._open(path, header, module)
            self._with_all_logits = self._open(path, header, module, logits_all=True)
            self._assistants = {
                name: self._open(file, write_gguf(small, file), small)
                for i, (name, small) in enumerate(assistants.items())
                for file in [Path(folder) / f"ssm-{i}.gguf"]
            }

    @property
    def version(self) -> str:
        return str(self._package.__version__)

    @property
    def assistants(self) -> Iterable[str]:
        return self._assistants.keys()

    def generate(
        self,
        prompt_ids: Sequence[int],
        tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        drafting: Drafting | None = None,
    ) -> list[int]:
        """New token ids, an end-of-text token included."""
        llama = self._plain if drafting is None else self._with_all_logits
        llama.draft_model = drafting
        llama.reset()  # empties the KV cache
        llama.set_seed(seed)
        ids: list[int] = []
        # No sampling filters: SpecScope samples from the unfiltered distribution.
        for token in llama.generate(
            list(prompt_ids), temp=temperature, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        ):
            ids.append(int(token))
            if len(ids) == tokens or token in self._ends:
                break
        return ids

    def lookup(self, count: int) -> Drafting:
        """llama-cpp-python's prompt lookup with at most `count` drafted tokens."""
        speculative: Any = importlib.import_module("llama_cpp.llama_speculative")
        lookup: Drafting = speculative.LlamaPromptLookupDecoding(LONGEST_MATCH, count)
        return lookup

    def drafting_with(self, name: str, count: int) -> Drafting:
        return DraftModel(self._assistants[name], count)

    def _open(self, path: Path, header: dict[str, Any], module: Any, **options: Any) -> Any:
        # The KV cache's type; float16 is llama.cpp's default.
        is_float32 = next(module.parameters()).dtype == torch.float32
        kind = self._package.GGML_TYPE_F32 if is_float32 else self._package.GGML_TYPE_F16
        options |= {"n_ctx": header["context_length"], "n_gpu_layers": 0, "verbose": False}
        options |= {"n_threads": self._threads, "n_threads_batch": self._threads}
        return self._package.Llama(str(path), type_k=kind, type_v=kind, **options)


class DraftModel:
    """A small model as llama-cpp-python's draft model."""

    def __init__(self, llama: Any, count: int) -> None:
        self._llama = llama
        self._count = count

    def __call__(self, input_ids: Any, /, **options: Any) -> Any:
        """`input_ids`: int32 (tokens,). Returns at most `count` ids, int32 (drafted,)."""
        # Text and draft must fit into the context.
        count = min(self._count, self._llama.n_ctx() - len(input_ids))
        drafts: list[int] = []
        if count > 0:
            # `generate` reuses the KV cache of the text's unchanged beginning.
            for token in self._llama.generate(input_ids.tolist(), temp=0.0, repeat_penalty=1.0):
                drafts.append(int(token))
                if len(drafts) == count:
                    break
        return np.array(drafts, dtype=np.intc)


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


def load_llama_cpp(
    module: Any, assistants: Mapping[str, Any], file: Path | None = None
) -> tuple[LlamaCpp | None, str]:
    """Returns llama.cpp and a sentence with its version. If it cannot be loaded, returns None and a
    sentence with the reason. `file`: see LlamaCpp."""
    if not is_installed():
        return None, f"llama.cpp did not compete: it is not installed (`{COMMAND}`)."
    try:
        llama = LlamaCpp(module, assistants, torch.get_num_threads(), file)
    except (ImportError, OSError, RuntimeError, ValueError, SpecScopeError) as error:
        return None, f"llama.cpp did not compete: {' '.join(str(error).split())[:200]}."
    return llama, f"llama.cpp is that of llama-cpp-python {llama.version}{_file_words(file)}."


def _file_words(file: Path | None) -> str:
    return f", reading {file.name}" if file else ""
