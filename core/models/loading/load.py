"""From names to loaded models: dtype, device, memory, tokenizer and vocabulary checks.

Names are `bundled`, `smollm2`, a local folder, a GGUF file, or a hub id (read from the local cache
where there is no network). Never `trust_remote_code`; pickled weights only through torch's
weights-only loader.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from core.config.checks import choice, names
from core.config.mechanisms import MODEL_FREE
from core.errors import MODEL_FAULTS, ModelLoadError, UnsupportedModelError
from core.events import ModelInfo
from core.models.hf_model import HfModel
from core.models.loading.catalog import (
    ALLOWED,
    BUNDLED,
    SMOLLM2,
    ModelSource,
    check_embedding,
    check_same_vocabulary,
    family_folder,
    shown_name,
)
from core.models.loading.count_file import read_counts
from core.models.loading.differences import context_length_of, load_warnings
from core.models.loading.finding import find
from core.models.loading.gguf_cache import check_complete, recorded_warnings
from core.models.loading.narrow_head import narrow_head
from core.models.loading.placing import (
    DEVICES,
    DTYPES,
    check_memory,
    device_of,
    dtype_of,
    expand_bundled,
    need_of,
)
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.models.stacking import stack_alike

__all__ = ["LoadedModels", "Say", "load_models"]

# Names with another meaning where a drafter is named: choices, filters of the run log, lanes of a
# timeline or trace.
RESERVED_NAMES = frozenset(
    {*MODEL_FREE, "llm", "all", "first", "combine", "verify", "commit", "none", "rounds"}
)
FINGERPRINT_VALUES = 256
# Fields of a configuration that do not decide a text, or are the device's and dtype's.
BITS = MappingProxyType({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64})
NOT_IDENTITY = (
    "_name_or_path",
    "architectures",
    "dtype",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)

Say = Callable[[str], None]
"""Called with each stage before it begins; an exception from it ends the loading."""


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """An LLM, its SSMs (small speculative models) by name, and the tokenizer they share.

    `warnings`: what differs from transformers' `generate`; every run repeats it. `counts`: rows for
    the drafter `table` (`core.drafters.count_table`) that came with the LLM. `own_drafters`: import
    paths of the drafters that `Engine` was given."""

    llm: LanguageModel
    ssms: dict[str, LanguageModel]
    tokenizer: Any
    eos_ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    counts: np.ndarray | None = None
    own_drafters: tuple[str, ...] = ()

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The LLM's, then the SSMs' in their fixed order."""
        return (self.llm.info, *(ssm.info for ssm in self.ssms.values()))

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Names of the SSMs in their fixed order; `ngram` needs no model and is not among them."""
        return tuple(self.ssms)


def load_models(
    llm: str = BUNDLED,
    ssms: Sequence[str] = (BUNDLED,),
    dtype: str = "auto",
    device: str = "auto",
    say: Say | None = None,
) -> LoadedModels:
    """Loads and checks everything; `ssms` may be empty, `bundled` there means all bundled SSMs.

    Tokenizers and memory come first: what can be refused is refused before weights are read.
    Raises ModelLoadError, UnsupportedModelError, VocabMismatchError, OutOfMemoryError, ConfigError,
    and whatever `say` raises.
    """
    choice("dtype", dtype, ("auto", *DTYPES))
    choice("device", device, DEVICES)
    names("ssm", list(ssms), at_most=16)
    place = device_of(device)
    with _quiet():
        return _load_all(llm, ssms, dtype, place, say or _ignore_stage)


def _ignore_stage(_: str) -> None:
    """The default `say`."""


def _load_all(
    llm: str, ssms: Sequence[str], dtype: str, place: torch.device, say: Say
) -> LoadedModels:
    say("Looking for the models")
    llm_source = find(llm, _about(say, "LLM", llm))
    small_names = [name for ssm in ssms for name in expand_bundled(ssm, llm)]
    sources = [find(name, _about(say, "SSM", name)) for name in small_names]
    say("Comparing the tokenizers")
    tokenizer = load_tokenizer(llm_source)
    for source in sources:
        check_same_vocabulary(tokenizer, load_tokenizer(source), str(llm_source), str(source))
    # Together: each of them alone may fit.
    check_memory([need_of(source.name, dtype, place) for source in (llm_source, *sources)], place)
    big = load_one(llm_source, "llm", dtype, place, _about(say, "LLM", str(llm_source)))
    check_embedding(tokenizer, big)
    small: dict[str, LanguageModel] = {}
    for number, source in enumerate(sources, start=1):
        about = _about(say, f"SSM {number} of {len(sources)}", str(source))
        model = load_one(source, "ssm", dtype, place, about)
        check_embedding(tokenizer, model)
        # A colon is a drafter of one's own (`is_own`).
        own_name = model.info.name.replace(":", "-")
        name = _unique_name(own_name, {*small, *RESERVED_NAMES})
        small[name] = model.rename(name)
    # SSMs of one shape share their passes from here on; no row is open yet.
    stack_alike(list(small.values()))
    warnings = load_warnings(big._module) + recorded_warnings(llm_source.name)
    counts = read_counts(_companions(llm, llm_source), big.vocab_size)
    return LoadedModels(big, small, tokenizer, _eos_ids(big, tokenizer), warnings, counts)


def _companions(llm: str, source: ModelSource) -> Path:
    """The folder of what comes with an LLM besides its weights."""
    return family_folder(llm) if llm == SMOLLM2 else Path(source.name)


def _about(say: Say, role: str, name: str) -> Say:
    return lambda stage: say(f"{role} {shown_name(name)}: {stage}")


def load_tokenizer(source: ModelSource) -> Any:
    """The tokenizer of a folder or hub id. Raises ModelLoadError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            source.name, local_files_only=source.local, trust_remote_code=False
        )
    except MODEL_FAULTS as error:
        raise ModelLoadError(_unreadable("tokenizer", source, error)) from error


def load_one(
    source: ModelSource, role: str, dtype: str, device: torch.device, say: Say = _ignore_stage
) -> HfModel:
    """One model, in eval mode, its tree pass checked."""
    from transformers import AutoConfig, AutoModelForCausalLM

    say("configuration")
    where: dict[str, Any] = {"local_files_only": source.local, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(source.name, **where)
    except MODEL_FAULTS as error:
        raise ModelLoadError(_unreadable("model", source, error)) from error
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"model {source} is of type {config.model_type}: a decoder-only model is allowed"
        )
    config.return_dict = True  # as `generate` asks for, whatever the folder says
    torch_dtype = dtype_of(dtype, source.name, device)
    check_memory([need_of(source.name, dtype, device)], device)
    say("weights")
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.name,
            config=config,
            dtype=torch_dtype,
            attn_implementation=_attention_of(config),
            output_loading_info=True,
            **where,
        )
        module, report = loaded
        # transformers would fill missing weights with random numbers and only warn.
        check_complete(report)
        if role == "ssm":
            narrow_head(module)
        module = module.to(device).eval()
        info = _info(module, source, role, torch_dtype, device)
    except UnpicklingError as error:
        raise ModelLoadError(
            f"model is {str(source)!r}: its pickled weights hold more than tensors, and nothing of "
            "them was run; a folder with safetensors is allowed"
        ) from error
    except MODEL_FAULTS as error:
        raise ModelLoadError(_unreadable("model", source, error)) from error
    say("tree check")
    return checked_model(module, info)


def _attention_of(config: Any) -> str:
    """The attention implementation to ask transformers for: one that takes additive 4-D masks.

    A folder may name another, whose package is missing or whose kernel crashes on such masks.
    """
    from transformers import AutoModelForCausalLM

    kind = AutoModelForCausalLM._model_mapping.get(type(config), None)
    return "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"


def _info(
    module: Any, source: ModelSource, role: str, dtype: torch.dtype, device: torch.device
) -> ModelInfo:
    return ModelInfo(
        name=source.title,
        role=role,
        parameters=sum(p.numel() for p in module.parameters()),
        architecture=type(module).__name__,
        vocab_size=module.get_output_embeddings().weight.shape[0],
        context_length=context_length_of(module),
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        fingerprint=fingerprint_of(module),
    )


@torch.inference_mode()
def fingerprint_of(module: Any) -> str:
    """A digest of what decides a module's texts: of its configuration what is no default, its
    end-of-text tokens, and of each stored weight some hundred values and the sum of all bits.
    To digest whole weights would take seconds a gigabyte."""
    ends = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    config = [_identity(module.config.to_diff_dict()), ends]
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in module.state_dict().items():
        values = weight.detach().flatten()
        step = max(1, values.numel() // FINGERPRINT_VALUES)
        total = int(values.view(BITS[weight.itemsize]).sum()) if values.numel() else 0
        digest.update(f"{name} {tuple(weight.shape)} {total} ".encode())
        digest.update(values[::step].double().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _identity(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _identity(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in NOT_IDENTITY
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, which would cut through the text that `python -m core` streams, and no
    reports: what is wrong with a model is said in our own error."""
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()
    before = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _unreadable(what: str, source: ModelSource, error: Exception) -> str:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    if "ignore_mismatched_sizes" in reason:  # transformers' hint at a report that is not shown
        reason = "its weights have other shapes than its config.json says"
    return f"{what} is {str(source)!r}: it cannot be read ({reason}); {ALLOWED}"


def _unique_name(name: str, used: set[str]) -> str:
    if name not in used:
        return name
    return next(f"{name}-{i}" for i in itertools.count(2) if f"{name}-{i}" not in used)


def _eos_ids(model: HfModel, tokenizer: Any) -> tuple[int, ...]:
    generation = getattr(model._module, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = tokenizer.eos_token_id
    all_ids = [] if ids is None else ids if isinstance(ids, (list, tuple)) else [ids]
    if not all(isinstance(i, int) for i in all_ids):
        raise ModelLoadError(
            f"eos_token_id of {model.info.name} is {ids!r}: a whole number or a list of them"
        )
    return tuple(all_ids)
