"""The interface of a suite (`Suite`), its inputs (`Context`) and its result (`Report`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from bench.contestants import DecodeCase
from bench.prompts import Prompt, load_prompts
from bench.results import Results
from bench.settings import Settings
from core.errors import ConfigError
from core.models.loading.catalog import bundled_ssms, ssms_in
from core.models.loading.load import LoadedModels, load_models


@dataclass(frozen=True)
class Context:
    """`prompts`: the prompts that the settings choose. `grown`: the folder of grown models,
    see `bench.grown.module`. `family`: a folder with `llm` and `ssm-*`.
    """

    settings: Settings
    prompts: tuple[Prompt, ...]
    all_prompts: tuple[Prompt, ...]
    results: Results
    load: Callable[[str], LoadedModels]
    say: Callable[[str], None]
    grown: Path | None = None
    family: Path | None = None

    def case(
        self, item: str, repeat: int, temperature: float, *, ignore_eos: bool = False
    ) -> DecodeCase:
        prompt = next(prompt for prompt in self.all_prompts if prompt.id == item)
        seed, tokens = prompt.seed(repeat), self.settings.tokens
        return DecodeCase(prompt, seed, tokens, temperature, ignore_eos)

    @property
    def ssms(self) -> tuple[Path, ...]:
        return bundled_ssms() if self.family is None else ssms_in(self.family)


@dataclass(frozen=True, slots=True)
class Report:
    """Markdown tables, and one sentence for each failed check."""

    tables: tuple[str, ...]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """`about`: one line for `--list`. `one_dtype`: whether a run takes only one dtype.
    `measures_time`: if true, the work is not divided among processes."""

    name: str
    about: str
    defaults: Settings
    one_dtype: ClassVar[bool] = False
    measures_time: ClassVar[bool] = True

    def load_prompts(self) -> tuple[Prompt, ...]:
        """All prompts from which the settings choose."""
        return load_prompts()

    def loader(self, family: Path | None) -> Callable[[str], LoadedModels]:
        """See the function `loader`."""
        return loader(family)

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for settings with which the suite cannot run."""
        if self.measures_time and settings.processes > 1:
            allowed = "1: `laws` and `acceptance` alone are not timed"
            raise ConfigError.of("processes", settings.processes, allowed)
        if self.one_dtype and len(settings.dtypes) != 1:
            raise ConfigError.of("dtype", " ".join(settings.dtypes), "one dtype a run")

    def measure(self, context: Context) -> None:
        """Adds the missing samples to `context.results`."""
        raise NotImplementedError

    def report(self, context: Context) -> Report:
        """Tables from the samples alone; runs no model."""
        raise NotImplementedError


def loader(family: Path | None) -> Callable[[str], LoadedModels]:
    """A function from a dtype to the models of `family` (None: the bundled models), on the CPU.
    Each dtype is loaded once."""
    if family is None:
        return cache(lambda dtype: load_models(dtype=dtype, device="cpu"))
    llm, ssms = str(family / "llm"), [str(folder) for folder in ssms_in(family)]
    return cache(lambda dtype: load_models(llm, ssms, dtype, "cpu"))


def family_in(folder: Path) -> Path:
    """The absolute path. Raises ConfigError unless the folder has `llm` and at least one
    `ssm-*`."""
    if not (folder / "llm" / "config.json").is_file() or not ssms_in(folder):
        raise ConfigError.of("family", str(folder), "a folder of llm and at least one ssm-*")
    return folder.resolve()
