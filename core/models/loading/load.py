"""Loads models by name. Checks dtype, device, memory, tokenizers and vocabularies.

`trust_remote_code` is False, and torch's weights-only loader reads pickled weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from core.config.checks import choice, names
from core.config.mechanisms import MODEL_FREE
from core.config.offload import Offload
from core.config.ranks import RankSplit
from core.errors import MODEL_FAULTS, ConfigError, ModelLoadError
from core.events import ModelInfo
from core.models.chat_template import TemplateProcess
from core.models.hf_model import HfModel
from core.models.loading.catalog import (
    BUNDLED,
    SMOLLM2,
    ModelSource,
    check_embedding,
    check_same_vocabulary,
    family_folder,
    shown_name,
)
from core.models.loading.count_file import read_counts
from core.models.loading.differences import load_warnings
from core.models.loading.finding import find
from core.models.loading.fingerprint import fingerprint_of
from core.models.loading.gguf_cache import recorded_warnings
from core.models.loading.narrow_head import narrow_head
from core.models.loading.offloading import load_offloaded
from core.models.loading.placing import (
    DEVICES,
    DTYPES,
    Need,
    check_memory,
    device_of,
    dtype_of,
    expand_bundled,
    need_of,
)
from core.models.loading.progress import Say
from core.models.loading.reading import (
    info_of,
    quiet_transformers,
    read_config,
    read_error,
    read_module,
    reading_model,
)
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.models.stacking import stack_alike

__all__ = ["RESERVED_NAMES", "LoadedModels", "load_models", "load_ssms"]

# No SSM may have these names: they have other meanings.
RESERVED_NAMES = frozenset(
    {*MODEL_FREE, "llm", "all", "first", "combine", "verify", "commit", "layers", "none", "rounds"}
)


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """An LLM, its SSMs (small speculative models) by name, and the tokenizer they share.

    `warnings`: differences from transformers' `generate`, and parts of a GGUF file that were not
    read. `counts`: rows for the drafter `table` (`core.drafters.count_table`). `user_drafters`:
    import paths. `remote`: SSMs on drafter nodes. `templates`: renders the tokenizer's chat
    template. `tokenizing`: the tokenizer's lock.
    """

    llm: LanguageModel
    ssms: dict[str, LanguageModel]
    tokenizer: Any
    eos_ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    counts: np.ndarray | None = None
    user_drafters: tuple[str, ...] = ()
    remote: tuple[ModelInfo, ...] = ()
    templates: TemplateProcess = field(default_factory=TemplateProcess, compare=False)
    tokenizing: Lock = field(default_factory=Lock, compare=False, repr=False)

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The infos of the LLM, of the SSMs, and of the SSMs on drafter nodes."""
        return (self.llm.info, *(ssm.info for ssm in self.ssms.values()), *self.remote)

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Names of the SSMs in the order of `infos`."""
        return (*self.ssms, *(info.name for info in self.remote))


def load_models(
    llm: str = BUNDLED,
    ssms: Sequence[str] = (BUNDLED,),
    dtype: str = "auto",
    device: str = "auto",
    say: Say | None = None,
    offload: Offload | None = None,
    ranks: RankSplit | None = None,
) -> LoadedModels:
    """Loads and checks an LLM and SSMs. The name `bundled` in `ssms` means all SSMs bundled for
    this LLM. With `offload` the LLM's layers are streamed in each pass. With `ranks` the LLM is
    divided among processes. Raises ModelError, ConfigError, and errors of `say`."""
    torch_device, say = _check_choices(ssms, dtype, device), say or _ignore_stage
    with quiet_transformers():
        say("Looking for the models")
        llm_source = find(llm, _with_role(say, "LLM", llm))
        ssm_names = [name for ssm in ssms for name in expand_bundled(ssm, llm)]
        sources = [find(name, _with_role(say, "SSM", name)) for name in ssm_names]
        say("Comparing the tokenizers")
        tokenizer = load_tokenizer(llm_source)
        for source in sources:
            check_same_vocabulary(tokenizer, load_tokenizer(source), str(llm_source), str(source))
        # The sum is checked: each model alone may fit.
        needs = [need_of(source.name, dtype, torch_device) for source in (llm_source, *sources)]
        check_memory(
            [_device_need(needs[0], llm_source, offload, torch_device, ranks), *needs[1:]],
            torch_device,
        )
        say_of_model = _with_role(say, "LLM", str(llm_source))
        model = load_one(llm_source, "llm", dtype, torch_device, say_of_model, offload, ranks)
        check_embedding(tokenizer, model)
        by_name = _load_sources(sources, tokenizer, dtype, torch_device, say)
        warnings = load_warnings(model._module) + recorded_warnings(llm_source.name)
        # The folder of the files that come with the LLM.
        extras_folder = family_folder(llm) if llm == SMOLLM2 else Path(llm_source.name)
        counts = read_counts(extras_folder, model.vocab_size)
        eos_ids = _eos_ids(model, tokenizer)
        return LoadedModels(model, by_name, tokenizer, eos_ids, warnings, counts)


def _check_choices(ssms: Sequence[str], dtype: str, device: str) -> torch.device:
    choice("dtype", dtype, ("auto", *DTYPES))
    choice("device", device, DEVICES)
    names("ssm", list(ssms), at_most=16)
    return device_of(device)


def _ignore_stage(_: str) -> None:
    """The default `say`."""


def load_ssms(
    ssms: Sequence[str], dtype: str = "auto", device: str = "auto", say: Say | None = None
) -> tuple[dict[str, LanguageModel], Any]:
    """SSMs without an LLM, by name, and the tokenizer they share; see `load_models`."""
    torch_device, say = _check_choices(ssms, dtype, device), say or _ignore_stage
    with quiet_transformers():
        ssm_names = [name for ssm in ssms for name in expand_bundled(ssm)]
        sources = [find(name, _with_role(say, "SSM", name)) for name in ssm_names]
        tokenizer = load_tokenizer(sources[0])
        for source in sources[1:]:
            first, other = str(sources[0]), str(source)
            check_same_vocabulary(tokenizer, load_tokenizer(source), first, other)
        check_memory(
            [need_of(source.name, dtype, torch_device) for source in sources], torch_device
        )
        return _load_sources(sources, tokenizer, dtype, torch_device, say), tokenizer


def _load_sources(
    sources: Sequence[ModelSource], tokenizer: Any, dtype: str, torch_device: torch.device, say: Say
) -> dict[str, LanguageModel]:
    """The SSMs by name, stacked where possible (see `stack_alike`)."""
    by_name: dict[str, LanguageModel] = {}
    for number, source in enumerate(sources, start=1):
        say_of_model = _with_role(say, f"SSM {number} of {len(sources)}", str(source))
        model = load_one(source, "ssm", dtype, torch_device, say_of_model)
        check_embedding(tokenizer, model)
        # Only names of user-defined drafters have a colon.
        name = _unique_name(model.info.name.replace(":", "-"), {*by_name, *RESERVED_NAMES})
        by_name[name] = model.rename(name)
    # Stacked before any request: a model with open rows in its KV cache cannot be stacked.
    stack_alike(list(by_name.values()))
    return by_name


def _with_role(say: Say, role: str, name: str) -> Say:
    return lambda stage: say(f"{role} {shown_name(name)}: {stage}")


def load_tokenizer(source: ModelSource) -> Any:
    """The tokenizer of a folder or hub id. Raises ModelLoadError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            source.name, local_files_only=source.local, trust_remote_code=False
        )
    except MODEL_FAULTS as error:
        raise read_error("tokenizer", source, error) from error


def load_one(
    source: ModelSource,
    role: str,
    dtype: str,
    device: torch.device,
    say: Say = _ignore_stage,
    offload: Offload | None = None,
    ranks: RankSplit | None = None,
) -> HfModel:
    """One model in eval mode, whose tree pass has been checked."""
    say("configuration")
    config = read_config(source)
    torch_dtype = dtype_of(dtype, source.name, device)
    need = need_of(source.name, dtype, device)
    if ranks is not None:
        # Imported here: only an LLM over ranks needs this module.
        from core.models.ranks.sharding import check_split

        check_split(config, source.title, ranks)
    check_memory([_device_need(need, source, offload, device, ranks)], device)
    if ranks is not None:
        try:
            from core.models.ranks.leader import load_ranked
        except ImportError as error:
            raise ConfigError.of(
                "llm_ranks",
                str(ranks),
                f"package {error.name} is missing; pip install -r requirements-cluster.txt",
            ) from error
        return load_ranked(source, config, torch_dtype, device, ranks, say)
    if offload is not None and offload.mode == "host" and device.type == "cuda":
        check_memory([need], torch.device("cpu"))  # where the streamed layers are kept
    if offload is not None:
        return load_offloaded(source, config, torch_dtype, device, offload, say)
    say("weights")
    with reading_model(source):
        module = read_module(source, config, torch_dtype)
        if role == "ssm":
            narrow_head(module)
        module = module.to(device).eval()
        info = info_of(module, source, role, torch_dtype, device, fingerprint_of(module))
    say("tree check")
    return checked_model(module, info)


def _device_need(
    need: Need,
    source: ModelSource,
    offload: Offload | None,
    device: torch.device,
    ranks: RankSplit | None,
) -> Need:
    """The memory that an LLM takes on the device. A streamed LLM takes the embedding, the head, two
    layer buffers and the layers that stay on the device. With `ranks`, a GPU holds one rank's part
    and an embedding; a CPU holds both for every rank."""
    if (offload is None and ranks is None) or need.bytes == 0:
        return need
    config = read_config(source)
    # Elements of the embedding and of the head; a tied head is not counted.
    matrices = 1 if getattr(config, "tie_word_embeddings", False) else 2
    elements = (
        matrices * int(getattr(config, "vocab_size", 0)) * int(getattr(config, "hidden_size", 0))
    )
    outside = min(need.bytes, elements * DTYPES[need.dtype].itemsize)
    all_layers = need.bytes - outside
    if ranks is not None:
        rank_bytes = elements // matrices * DTYPES[need.dtype].itemsize + need.bytes // ranks.count
        return replace(
            need, bytes=rank_bytes if device.type == "cuda" else rank_bytes * ranks.count
        )
    assert offload is not None
    layer = all_layers // max(1, int(getattr(config, "num_hidden_layers", 1)))
    on_host = offload.mode == "host" and device.type == "cpu"
    kept_layers = all_layers if on_host else min(all_layers, offload.resident)
    return replace(need, bytes=outside + kept_layers + 2 * layer)


def _unique_name(name: str, names: set[str]) -> str:
    candidates = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in names)


def _eos_ids(model: HfModel, tokenizer: Any) -> tuple[int, ...]:
    # `generate` takes the generation config's ids. Without them the tokenizer's are taken.
    generation = getattr(model._module, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = tokenizer.eos_token_id
    all_ids = [] if ids is None else ids if isinstance(ids, (list, tuple)) else [ids]
    if not all(isinstance(i, int) for i in all_ids):
        raise ModelLoadError.of(
            f"eos_token_id of {model.info.name}", ids, "a whole number or a list of them"
        )
    return tuple(all_ids)
