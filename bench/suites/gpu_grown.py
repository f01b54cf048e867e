"""`gpu-grown-1b`, `gpu-grown-7b`: the contest of `gpu-bundled` on models grown on the device, each
with SSMs as they are and with SSMs grown to a hundredth of the LLM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.grown.family import Member, Wish, family_of
from bench.grown.module import grow_module
from bench.settings import Settings
from bench.suites.gpu import GpuContest
from bench.theirs import Theirs, load_module
from core.engine.engine import Engine
from core.events import ModelInfo
from core.models.hf_model import HfModel
from core.models.loading.load import load_models
from core.models.loading.tree_check import checked_model
from core.models.protocol import LanguageModel
from core.models.stacking import stack_alike

__all__ = ["GPU_GROWN", "Growing"]

DEFAULTS = Settings(prompts=4, tokens=64, repeats=3, dtypes=("bfloat16",))


@dataclass(frozen=True, slots=True)
class Growing:
    """Summons the bundled family grown to so many parameters; `ssm_params` 0: SSMs as they are."""

    params: int
    ssm_params: int

    def __call__(self, dtype: str, device: str) -> tuple[Engine, Theirs]:
        """One LLM in memory, which both sides read: of 7 B two might not fit."""
        family = family_of(Wish(self.params, self.ssm_params, dtype=dtype))
        small = load_models(dtype=dtype, device="cpu")

        def module_of(member: Member) -> Any:
            module = load_module(member.folder, getattr(torch, dtype)).to(device)
            return (
                module
                if member.plan is None
                else grow_module(module, member.plan, family.wish.seed)
            )

        def model_of(module: Any, name: str, like: ModelInfo) -> HfModel:
            count = sum(parameter.numel() for parameter in module.parameters())
            info = replace(like, name=name, parameters=count, device=device)
            return checked_model(module, info)

        large = module_of(family.llm)
        llm = model_of(large, family.llm.name, small.llm.info)
        ssms: dict[str, LanguageModel] = {
            one.name: model_of(module_of(one), one.name, small.ssms[one.source].info)
            for one in family.ssms
        }
        stack_alike(list(ssms.values()))
        return Engine(replace(small, llm=llm, ssms=ssms)), Theirs(dtype, large)


SIZES = {"1b": (10**9, "1 B"), "7b": (7 * 10**9, "7 B")}
GPU_GROWN = tuple(
    GpuContest(
        name=f"gpu-grown-{size}{'-ssms' if grown_ssms else ''}",
        about=f"gpu-bundled, the LLM grown to {words}; SSMs "
        + (f"grown to {params // 10**8} M" if grown_ssms else "as they are"),
        defaults=DEFAULTS,
        summon=Growing(params, params // 100 if grown_ssms else 0),
    )
    for size, (params, words) in SIZES.items()
    for grown_ssms in (False, True)
)
