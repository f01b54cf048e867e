"""Suites with grown models (see `bench.grown.module`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.contestants import TransformersLlm, load_module
from bench.context import Context
from bench.ggml.peer import is_installed, load_llama_cpp
from bench.grown.command import GrownFamily, GrowthRequest, Member, family_of, write_family
from bench.grown.module import grow_module
from bench.grown.writing import check_memory_to_grow
from bench.settings import Settings
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.cpu_tables import LoadedContestants
from bench.suites.gpu import GpuContest
from core.engine.engine import Engine
from core.events import ModelInfo
from core.models.hf_model import HfModel
from core.models.loading.catalog import BUNDLED, bundled_llm, bundled_ssms
from core.models.loading.load import LoadedModels, load_models
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.models.stacking import stack_alike
from core.speculation_length.cost_model.ledger import Costs

GROWN = "grown"
PARAMS, SSM_PARAMS = 500_000_000, 5_000_000
SETTINGS_KEPT = 2  # settings of each drafter that go on after the sweep's first prompt


@dataclass(frozen=True, slots=True)
class GrownContestants:
    """`params`, `ssm_params`: parameters of the grown LLM and of each grown SSM."""

    params: int = PARAMS
    ssm_params: int = SSM_PARAMS

    def __call__(self, context: Context, dtype: str) -> LoadedContestants:
        family = family_of(GrowthRequest(self.params, self.ssm_params, dtype=dtype))
        bundled = context.load(dtype)
        grown: FamilyInMemory | FamilyInFolders
        if context.grown is not None:
            grown = FamilyInFolders(family, context)
        else:
            if family.llm.plan is not None:
                # Copies of the weights: the engine's, packed ones, transformers', llama.cpp's.
                copies, name = 4 if is_installed() else 3, family.llm.name
                check_memory_to_grow(family.llm.plan, getattr(torch, dtype), name, copies)
            grown = FamilyInMemory(family, bundled, context.say)
        large = grown.loaded_models()
        count = next(iter(large.ssms.values())).info.parameters
        with_small = Engine(replace(large, ssms=bundled.ssms))
        # Both engines share the measured times of LLM passes: measurements take long.
        with_grown = Engine(large, costs=Costs(large.llm, with_small.costs.verify))
        engines = {"SSMs as they are": with_small, f"SSMs grown to {count / 1e6:.1f} M": with_grown}
        transformers = TransformersLlm(dtype, grown.module(family.llm))
        assistants = {path.name: load_module(path, transformers.dtype) for path in bundled_ssms()}
        assistants |= {ssm.name: grown.module(ssm) for ssm in family.ssms if ssm.plan}
        return LoadedContestants(
            engines, transformers, assistants, *load_llama_cpp(transformers.module, assistants)
        )


def llm_folders(context: Context, dtype: str, params: int) -> dict[str, Path]:
    """LLM folders by name. A grown LLM that is missing is written first."""
    folders = {BUNDLED: bundled_llm()}
    if context.grown is not None:
        family = family_of(GrowthRequest(params, 0, dtype=dtype))
        folders[GROWN] = write_family(family, context.grown / dtype, context.say)[0]
    return folders


def grown_models(context: Context, dtype: str) -> LoadedModels:
    return FamilyInFolders(
        family_of(GrowthRequest(PARAMS, SSM_PARAMS, dtype=dtype)), context
    ).loaded_models()


class FamilyInFolders:
    """A GrownFamily in folders. Missing folders are written first."""

    def __init__(self, family: GrownFamily, context: Context) -> None:
        assert context.grown is not None
        folders = write_family(family, context.grown / family.request.dtype, context.say)
        self._dtype = family.request.dtype
        names = (member.name for member in family.members)
        self._folders: dict[str, Path] = dict(zip(names, folders, strict=True))

    def loaded_models(self) -> LoadedModels:
        llm, *ssms = map(str, self._folders.values())
        return load_models(llm, ssms, self._dtype, "cpu")

    def module(self, member: Member) -> Any:
        return load_module(self._folders[member.name], getattr(torch, self._dtype))


class FamilyInMemory:
    """A GrownFamily in this process, on `device`. `small`: the models before growth."""

    def __init__(
        self,
        family: GrownFamily,
        small: LoadedModels,
        say: Callable[[str], None],
        device: str = "cpu",
    ) -> None:
        self._family, self._small, self._say, self._device = family, small, say, device

    def loaded_models(self, llm: Any = None) -> LoadedModels:
        """`llm`: the module to use as the LLM; None: a new module."""
        family, small = self._family, self._small
        large = self._model(family.llm, small.llm.info, llm)
        ssms: dict[str, LanguageModel] = {
            one.name: self._model(one, small.ssms[one.source].info) for one in family.ssms
        }
        stack_alike(list(ssms.values()))
        return replace(small, llm=large, ssms=ssms)

    def module(self, member: Member) -> Any:
        request = self._family.request
        module = load_module(member.folder, getattr(torch, request.dtype)).to(self._device)
        if member.plan is None:
            return module
        self._say(f"growing {member.source}: {member.plan.large}")
        return grow_module(module, member.plan, request.seed)

    def _model(self, member: Member, small: ModelInfo, module: Any = None) -> HfModel:
        module = self.module(member) if module is None else module
        count = sum(parameter.numel() for parameter in module.parameters())
        info = replace(small, name=member.name, parameters=count, device=self._device)
        return checked_model(module, info)


CPU_GROWN = CpuBundled(
    name="cpu-grown",
    about=(
        "cpu-bundled on grown models: an LLM of 0.5 B parameters, SSMs as they are and of 5 M; "
        "about 15 minutes per dtype"
    ),
    defaults=Settings(prompts=4, tokens=32, repeats=3, dtypes=("bfloat16",)),
    temperatures=(0.0,),
    load_contestants=GrownContestants(),
    settings_kept=SETTINGS_KEPT,
    title="grown models, ",
    note=(
        "The models are grown, that is, function-preserving enlargements of the bundled ones: no "
        f"such pair was trained. Of each drafter's settings the {SETTINGS_KEPT} fastest on the "
        "first prompt were swept on the others. "
    ),
)


@dataclass(frozen=True, slots=True)
class GrownLoader:
    """`params`, `ssm_params`: parameters of the grown LLM and of each grown SSM; 0: SSMs are not
    grown."""

    params: int
    ssm_params: int

    def __call__(self, dtype: str, device: str) -> tuple[Engine, TransformersLlm]:
        """Both contestants use one LLM: two LLMs of 7 B parameters may not fit into memory."""
        family = family_of(GrowthRequest(self.params, self.ssm_params, dtype=dtype))
        small = load_models(dtype=dtype, device="cpu")
        grown = FamilyInMemory(family, small, lambda message: None, device)
        large = grown.module(family.llm)
        return Engine(grown.loaded_models(large)), TransformersLlm(dtype, large)


SIZES = {"1b": (10**9, "1 B"), "7b": (7 * 10**9, "7 B")}
GPU_GROWN = tuple(
    GpuContest(
        name=f"gpu-grown-{size}{'-ssms' if grown_ssms else ''}",
        about=f"gpu-bundled, the LLM grown to {size_text}; SSMs "
        + (f"grown to {params // 10**8} M" if grown_ssms else "as they are"),
        defaults=Settings(prompts=4, tokens=64, repeats=3, dtypes=("bfloat16",)),
        load=GrownLoader(params, params // 100 if grown_ssms else 0),
    )
    for size, (params, size_text) in SIZES.items()
    for grown_ssms in (False, True)
)
