"""`smollm2` and `smollm2-laws`: SmolLM2 answers chat prompts.

In bfloat16, the reference of `smollm2-laws` is plain decoding at every temperature: transformers
rounds sums differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import ClassVar

from bench.contestants import TransformersLlm, load_module
from bench.context import Context, Suite
from bench.ggml.peer import load_llama_cpp
from bench.prompts import CHAT_PROMPTS, Prompt, load_prompts
from bench.settings import Settings
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.cpu_tables import ContestantLoader, LoadedContestants
from bench.suites.law_check import GENERATE, PLAIN
from bench.suites.law_rows import TEMPERATURES, LawRow
from bench.suites.laws import Laws
from core.config import PRESETS, SpeculationConfig
from core.engine.engine import Engine
from core.models.loading.catalog import BUNDLED, SMOLLM2, bundled_ssms
from core.models.loading.finding import find, find_folder
from core.models.loading.load import LoadedModels, load_models


def load_smollm2(dtype: str) -> LoadedModels:
    """SmolLM2 on the CPU with its SSMs, if any."""
    return load_models(SMOLLM2, (BUNDLED,), dtype, "cpu")


def load_smollm2_contestants(context: Context, dtype: str) -> LoadedContestants:
    transformers = TransformersLlm(dtype, folder=Path(find_folder(SMOLLM2)))
    assistants = {
        path.name: load_module(path, transformers.dtype) for path in bundled_ssms(SMOLLM2)
    }
    file = find(SMOLLM2, context.say).file
    peer = load_llama_cpp(transformers.module, assistants, Path(file) if file else None)
    return LoadedContestants({"": Engine(context.load(dtype))}, transformers, assistants, *peer)


class ChatPrompts:
    def load_prompts(self) -> tuple[Prompt, ...]:
        return load_prompts(CHAT_PROMPTS, chat=True)

    def loader(self, family: Path | None) -> Callable[[str], LoadedModels]:
        return cache(load_smollm2)


@dataclass(frozen=True)
class SmolLm2(ChatPrompts, CpuBundled):
    name: str = "smollm2"
    about: str = "cpu-bundled with SmolLM2 on chat prompts, each drafter alone too; an hour a dtype"
    defaults: Settings = Settings(prompts=10, tokens=64, repeats=3, dtypes=("float32",))
    load_contestants: ContestantLoader = load_smollm2_contestants
    settings_kept: int | None = 2
    alone: bool = True
    title: str = "SmolLM2-135M-Instruct, "


@dataclass(frozen=True)
class SmolLm2Laws(ChatPrompts, Laws):
    """`measures_time` keeps the work in one process: other processes would load the bundled models,
    not SmolLM2."""

    measures_time: ClassVar[bool] = True
    one_dtype: ClassVar[bool] = True

    name: str = "smollm2-laws"
    about: str = "SmolLM2's answers under every preset are generate's and plain decoding's"
    defaults: Settings = Settings(prompts=40, tokens=64, repeats=1, dtypes=("float32",))

    @property
    def rows(self) -> tuple[LawRow, ...]:
        return tuple(
            LawRow(name, temperature, preset.resolve(temperature), together=1)
            for temperature, name in product(TEMPERATURES, PRESETS)
            for preset in [SpeculationConfig.preset(name, temperature)]
        )

    def check(self, settings: Settings) -> None:
        """Allows bfloat16, in which texts are compared with plain decoding."""
        Suite.check(self, settings)

    def transformers_llm(self) -> TransformersLlm:
        # `generate` is the reference in float32 only, see `reference_name`.
        return TransformersLlm("float32", folder=Path(find_folder(SMOLLM2)))

    def reference_name(self, context: Context, temperature: float) -> str:
        return GENERATE if temperature == 0 and context.settings.dtypes == ("float32",) else PLAIN
