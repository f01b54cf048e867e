"""Context: what a suite measures with. Loading is passed in, so that tests share models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.prompts import Prompt
from bench.results import Results
from bench.settings import Settings
from core.models.loading.catalog import bundled_ssms, ssms_in
from core.models.loading.load import LoadedModels

__all__ = ["Context", "Report"]


@dataclass(frozen=True)
class Context:
    """`prompts` are those chosen by the settings, `all_prompts` every one there is.

    `load(dtype)` gives the family on the CPU; `say` tells the reader how far it is. `grown`: the
    folder that grown models are kept in, None where they are grown anew each time. `family`: the
    folder of `llm` and `ssm-*`; None: the bundled one.
    """

    settings: Settings
    prompts: tuple[Prompt, ...]
    all_prompts: tuple[Prompt, ...]
    results: Results
    load: Callable[[str], LoadedModels]
    say: Callable[[str], None]
    grown: Path | None = None
    family: Path | None = None

    @property
    def ssms(self) -> tuple[Path, ...]:
        """The folders of the family's SSMs, by name."""
        return bundled_ssms() if self.family is None else ssms_in(self.family)


@dataclass(frozen=True, slots=True)
class Report:
    """Markdown tables, and one sentence for each thing that failed (exit status 1)."""

    tables: tuple[str, ...]
    failures: tuple[str, ...] = ()
