"""Options of a few suites, and `--dtype`: a suite that would not use one refuses it.

Prompts, tokens, repeats and threads are every suite's, though some read not all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from core.errors import ConfigError

__all__ = ["check_used"]

ONLY = MappingProxyType({"family": ("acceptance",), "grown": ("cpu-grown", "overhead")})
# They run the page, or no model at all.
WITHOUT_DTYPE = ("sessions", "start", "visitors")


def check_used(suite: str, given: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option that was given (is not None) and that the suite would not
    use."""
    for name, users in ONLY.items():
        if given.get(name) is not None and suite not in users:
            raise ConfigError.of(
                name, str(given[name]), f"not with {suite}; only with {', '.join(users)}"
            )
    if given.get("dtype") is not None and suite in WITHOUT_DTYPE:
        told = " ".join(given["dtype"])
        raise ConfigError.of("dtype", told, f"not with {suite}, which loads what the page loads")
