"""The family that a suite measures: the bundled one, or a folder of `llm` and `ssm-*`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from core.errors import ConfigError
from core.models.loading.catalog import ssms_in
from core.models.loading.load import LoadedModels, load_models

__all__ = ["family_in", "loader"]


def loader(family: Path | None) -> Callable[[str], LoadedModels]:
    """Loads the family in this folder, or the bundled one, on the CPU, each dtype once."""
    if family is None:
        return cache(lambda dtype: load_models(dtype=dtype, device="cpu"))
    llm, ssms = str(family / "llm"), [str(folder) for folder in ssms_in(family)]
    return cache(lambda dtype: load_models(llm, ssms, dtype, "cpu"))


def family_in(folder: Path) -> Path:
    """The absolute path of a folder of `llm` and at least one `ssm-*`; ConfigError where it is
    none."""
    if not (folder / "llm" / "config.json").is_file() or not ssms_in(folder):
        raise ConfigError.of("family", str(folder), "a folder of llm and at least one ssm-*")
    return folder.resolve()
