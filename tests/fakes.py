"""Tiny random models, and models that are tables."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

from bench.table_model import TableModel as Tables
from core.config import Request, SamplingParams, SpeculationConfig
from core.events import ModelInfo
from core.models.chat_template import TemplateProcess
from core.models.loading.load import LoadedModels
from core.models.loading.narrow_head import narrow_head
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.sequence import TokenSequence
from core.trees.noise import Noise, SeededNoise

VOCAB = 64
CONTEXT = 128
WINDOW = 8

_LLAMA_LIKE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.25,
}
_GPT2: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "initializer_range": 0.25,
}  # fmt: skip
_NEOX = {k: v for k, v in _LLAMA_LIKE.items() if k != "num_key_value_heads"}
_OPT: dict[str, Any] = {
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "word_embed_proj_dim": 32,
    "max_position_embeddings": CONTEXT,
    "init_std": 0.25,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _LLAMA_LIKE,
    "qwen2": _LLAMA_LIKE,
    "qwen3": {**_LLAMA_LIKE, "head_dim": 8},
    "mistral": {**_LLAMA_LIKE, "sliding_window": WINDOW},
    "phi3": _LLAMA_LIKE,
    "gemma2": {**_LLAMA_LIKE, "head_dim": 8, "sliding_window": WINDOW},
    "phi3-sliding": {**_LLAMA_LIKE, "sliding_window": WINDOW},
    "qwen2-sliding": {
        **_LLAMA_LIKE, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1,
    },
    "gpt2": _GPT2,
    "opt": _OPT,
    "gpt_neox": _NEOX,
}  # fmt: skip


def tiny_module(
    family: str,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    halved: bool = False,
    **changes: Any,
) -> Any:
    """A tiny random causal LM. `family`: a key of FAMILIES or a model type of transformers.
    `halved`: weights are rounded to bfloat16, but stored in `dtype`."""
    settings = {
        "vocab_size": VOCAB,
        "bos_token_id": 1,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
        **FAMILIES.get(family, _LLAMA_LIKE),
        **changes,
    }
    config = CONFIG_MAPPING[family.partition("-")[0]](**settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if halved:
        with torch.no_grad():
            for weight in module.parameters():
                weight.copy_(weight.bfloat16())
    return module.eval()


def perturb(module: Any, scale: float, seed: int = 0) -> Any:
    """A copy with noise on every weight."""
    generator = torch.Generator().manual_seed(seed)
    copy = type(module)(module.config).to(next(module.parameters()).dtype)
    copy.load_state_dict(module.state_dict())
    with torch.no_grad():
        for weight in copy.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight += scale * weight.std(correction=0).clamp(min=0.01) * noise
    return copy.eval()


def info_of(module: Any, name: str, role: str = "llm", context: int = CONTEXT) -> ModelInfo:
    parameter = next(module.parameters())
    return ModelInfo(
        name=name, role=role, parameters=sum(p.numel() for p in module.parameters()),
        architecture=type(module).__name__,
        vocab_size=module.get_output_embeddings().weight.shape[0], context_length=context,
        dtype=str(parameter.dtype).removeprefix("torch."), device="cpu",
    )  # fmt: skip


def with_narrow_head(module: Any, size: int = 40) -> Any:
    module.config.draft_vocab_size = size
    narrow_head(module)
    return module


def loaded_modules(
    llm: Any, ssms: Sequence[Any] = (), eos_ids: tuple[int, ...] = (), context: int = CONTEXT
) -> LoadedModels:
    small: dict[str, LanguageModel] = {
        f"ssm-{i}": checked_model(ssm, info_of(ssm, f"ssm-{i}", "ssm", context))
        for i, ssm in enumerate(ssms)
    }
    big = checked_model(llm, info_of(llm, "tiny", "llm", context))
    return LoadedModels(big, small, word_tokenizer(big.vocab_size), eos_ids)


def word_tokenizer(size: int = VOCAB) -> Any:
    """Token i is the word `w<i>`."""
    core = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core)


def note_results(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value_of: Callable[[Any], Any]
) -> list[Any]:
    """Each later call of `owner.name` appends `value_of(result)` to the returned list."""
    values: list[Any] = []
    original = getattr(owner, name)

    def noting(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        values.append(value_of(result))
        return result

    monkeypatch.setattr(owner, name, noting)
    return values


class NoText:
    def push(self, token_id: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


def sequence_of(
    prompt_ids: Sequence[int],
    speculation: SpeculationConfig,
    sampling: SamplingParams | None = None,
    noise: Noise | None = None,
    **fields: Any,
) -> TokenSequence:
    sampling = sampling or SamplingParams(50, seed=0)
    settings = {"eos_ids": frozenset(), "context_length": CONTEXT, "detokenizer": NoText()}
    return TokenSequence(
        run_id="run", request=Request("w0", sampling, speculation), sampling=sampling,
        speculation=speculation.resolve(sampling.temperature), prompt_ids=tuple(prompt_ids),
        noise=noise or SeededNoise(sampling.seed or 0, VOCAB), **{**settings, **fields},
    )  # fmt: skip


Table = Callable[[tuple[int, ...]], Sequence[float]]
"""Maps all token ids of the context to the probabilities of the next token."""


def random_table(vocab: int, seed: int, sharpness: float = 1.5, memory: int = 3) -> Table:
    return lambda context: _random_entry(vocab, seed, sharpness, context[-memory:])


# Many tests make tables of the same few seeds.
@lru_cache(maxsize=1 << 16)
def _random_entry(
    vocab: int, seed: int, sharpness: float, last: tuple[int, ...]
) -> tuple[float, ...]:
    generator = torch.Generator().manual_seed(hash((seed, last)) % (1 << 60))
    logits = sharpness * torch.randn(vocab, generator=generator, dtype=torch.float64)
    return tuple(logits.softmax(dim=0).tolist())


@lru_cache(maxsize=1 << 16)
def _logarithms_of(entry: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(entry, dtype=torch.float64).log().float()


class TableModel(Tables):
    """A LanguageModel whose next-token distributions are a function of the whole context."""

    def __init__(
        self,
        name: str,
        vocab: int,
        table: Table,
        context: int = 64,
        num_embeddings: int | None = None,
    ) -> None:
        self._table = table
        self._logits: dict[tuple[int, ...], torch.Tensor] = {}
        info = ModelInfo(name, "llm", 0, "table", vocab, context, "float32", "cpu")
        super().__init__(info, self._logarithms, num_embeddings)

    def _logarithms(self, context: tuple[int, ...]) -> torch.Tensor:
        """float32 (V,): the logarithm of the table's entry."""
        if context not in self._logits:
            self._logits[context] = _logarithms_of(tuple(self._table(context)))
        return self._logits[context]


def loaded_tables(
    llm: TableModel,
    ssms: Sequence[TableModel] = (),
    eos_ids: tuple[int, ...] = (),
    counts: np.ndarray | None = None,
) -> LoadedModels:
    small: dict[str, LanguageModel] = {ssm.info.name: ssm for ssm in ssms}
    tokenizer = word_tokenizer(llm.vocab_size)
    return LoadedModels(llm, small, tokenizer, eos_ids, counts=counts, templates=shared_templates())


@cache
def shared_templates() -> TemplateProcess:
    """One process for all tests: its start takes a second."""
    return TemplateProcess()
