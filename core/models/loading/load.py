"""From names to loaded models: dtype, device, memory, tokenizer and vocabulary checks.

Names are `bundled`, `smollm2`, a local folder, a GGUF file, or a hub id (read from the local cache
where there is no network). Never `trust_remote_code`; pickled weights only through torch's
weights-only loader.
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
from core.models.loading.differences import context_length_of, load_warnings
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
from core.models.loading.reading import (
    quiet_transformers,
    read_config,
    read_module,
    reading_model,
    unreadable,
)
from core.models.loading.stages import Say
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.models.stacking import stack_alike

__all__ = ["RESERVED_NAMES", "LoadedModels", "load_models", "load_ssms"]

# Names with another meaning where a drafter is named: choices, filters of the run log, lanes of a
# timeline or trace.
RESERVED_NAMES = frozenset(
    {*MODEL_FREE, "llm", "all", "first", "combine", "verify", "commit", "layers", "none", "rounds"}
)


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """An LLM, its SSMs (small speculative models) by name, and the tokenizer they share.

    `warnings`: what differs from transformers' `generate`; every run repeats it. `counts`: rows for
    the drafter `table` (`core.drafters.count_table`) that came with the LLM. `own_drafters`: import
    paths of the drafters that `Engine` was given. `templates`: where the tokenizer's chat
    template is rendered. `tokenizing`: held while the tokenizer reads a text."""

    llm: LanguageModel
    ssms: dict[str, LanguageModel]
    tokenizer: Any
    eos_ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    counts: np.ndarray | None = None
    own_drafters: tuple[str, ...] = ()
    remote: tuple[ModelInfo, ...] = ()
    templates: TemplateProcess = field(default_factory=TemplateProcess, compare=False)
    tokenizing: Lock = field(default_factory=Lock, compare=False, repr=False)

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The LLM's, then the SSMs' in their fixed order, those on nodes last."""
        return (self.llm.info, *(ssm.info for ssm in self.ssms.values()), *self.remote)

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Names of the SSMs in their fixed order; `ngram` needs no model and is not among them."""
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
    """Loads and checks everything; `ssms` may be empty, `bundled` there means all bundled SSMs.
    With `offload` the LLM's layers are streamed in each pass; with `ranks` it is divided among
    processes, of which this one is the first.

    Tokenizers and memory come first: what can be refused is refused before weights are read.
    Raises ModelLoadError, UnsupportedModelError, VocabMismatchError, OutOfMemoryError, ConfigError,
    and whatever `say` raises.
    """
    choice("dtype", dtype, ("auto", *DTYPES))
    choice("device", device, DEVICES)
    names("ssm", list(ssms), at_most=16)
    place = device_of(device)
    with quiet_transformers():
        return _load_all(llm, ssms, dtype, place, say or _ignore_stage, offload, ranks)


def _ignore_stage(_: str) -> None:
    """The default `say`."""


def _load_all(
    llm: str,
    ssms: Sequence[str],
    dtype: str,
    place: torch.device,
    say: Say,
    offload: Offload | None,
    ranks: RankSplit | None,
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
    needs = [need_of(source.name, dtype, place) for source in (llm_source, *sources)]
    check_memory([_resident(needs[0], llm_source, offload, place, ranks), *needs[1:]], place)
    about = _about(say, "LLM", str(llm_source))
    big = load_one(llm_source, "llm", dtype, place, about, offload, ranks)
    check_embedding(tokenizer, big)
    small = _load_small(sources, tokenizer, dtype, place, say)
    warnings = load_warnings(big._module) + recorded_warnings(llm_source.name)
    counts = read_counts(_companions(llm, llm_source), big.vocab_size)
    return LoadedModels(big, small, tokenizer, _eos_ids(big, tokenizer), warnings, counts)


def load_ssms(
    ssms: Sequence[str], dtype: str = "auto", device: str = "auto", say: Say | None = None
) -> tuple[dict[str, LanguageModel], Any]:
    """SSMs without an LLM, by name, and the tokenizer they share; see `load_models`."""
    choice("dtype", dtype, ("auto", *DTYPES))
    choice("device", device, DEVICES)
    names("ssm", list(ssms), at_most=16)
    place, say = device_of(device), say or _ignore_stage
    with quiet_transformers():
        every = [name for ssm in ssms for name in expand_bundled(ssm)]
        sources = [find(name, _about(say, "SSM", name)) for name in every]
        tokenizer = load_tokenizer(sources[0])
        for source in sources[1:]:
            first, other = str(sources[0]), str(source)
            check_same_vocabulary(tokenizer, load_tokenizer(source), first, other)
        check_memory([need_of(source.name, dtype, place) for source in sources], place)
        return _load_small(sources, tokenizer, dtype, place, say), tokenizer


def _load_small(
    sources: Sequence[ModelSource], tokenizer: Any, dtype: str, place: torch.device, say: Say
) -> dict[str, LanguageModel]:
    """The SSMs by name."""
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
    return small


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
        raise ModelLoadError(unreadable("tokenizer", source, error)) from error


def load_one(
    source: ModelSource,
    role: str,
    dtype: str,
    device: torch.device,
    say: Say = _ignore_stage,
    offload: Offload | None = None,
    ranks: RankSplit | None = None,
) -> HfModel:
    """One model, in eval mode, its tree pass checked."""
    say("configuration")
    config = read_config(source)
    torch_dtype = dtype_of(dtype, source.name, device)
    need = need_of(source.name, dtype, device)
    if ranks is not None:
        from core.models.ranks.sharding import check_split  # and torch.distributed

        check_split(config, source.title, ranks)
    check_memory([_resident(need, source, offload, device, ranks)], device)
    if ranks is not None:
        try:
            from core.models.ranks.leader import load_ranked
        except ImportError as error:
            raise ConfigError.of(
                "llm_ranks",
                str(ranks),
                "none where `pip install -r requirements-cluster.txt` was not run "
                f"({error.name} is missing)",
            ) from error
        return load_ranked(source, config, torch_dtype, device, ranks, say)
    if offload is not None and offload.mode == "host" and device.type == "cuda":
        check_memory([need], torch.device("cpu"))  # the streamed layers wait in host memory
    if offload is not None:

        def about(module: Any) -> ModelInfo:
            return _info(module, source, role, torch_dtype, device)

        return load_offloaded(source, config, about, torch_dtype, device, offload, say)
    say("weights")
    with reading_model(source):
        module = read_module(source, config, torch_dtype)
        if role == "ssm":
            narrow_head(module)
        module = module.to(device).eval()
        info = _info(module, source, role, torch_dtype, device)
    say("tree check")
    return checked_model(module, info)


def _resident(
    need: Need,
    source: ModelSource,
    offload: Offload | None,
    device: torch.device,
    ranks: RankSplit | None,
) -> Need:
    """What stays on the device of an LLM whose layers are streamed: embedding and head, resident
    layers and two buffers. Of layers that are streamed from a CPU's own memory, all do. Of an LLM
    over ranks its part on a GPU; on a CPU the parts of all ranks, with an embedding each."""
    if (offload is None and ranks is None) or need.bytes == 0:
        return need
    config = read_config(source)
    tables = 1 if getattr(config, "tie_word_embeddings", False) else 2
    rows = tables * int(getattr(config, "vocab_size", 0)) * int(getattr(config, "hidden_size", 0))
    outside = min(need.bytes, rows * DTYPES[need.dtype].itemsize)
    layers = need.bytes - outside
    if ranks is not None:
        each = rows // tables * DTYPES[need.dtype].itemsize + need.bytes // ranks.count
        return replace(need, bytes=each if device.type == "cuda" else each * ranks.count)
    assert offload is not None
    layer = layers // max(1, int(getattr(config, "num_hidden_layers", 1)))
    on_host = offload.mode == "host" and device.type == "cpu"
    kept = layers if on_host else min(layers, offload.resident)
    return replace(need, bytes=outside + kept + 2 * layer)


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
