"""The Suite protocol."""

from __future__ import annotations

from typing import Protocol

from bench.context import Context, Report
from bench.settings import Settings

__all__ = ["Suite"]


class Suite(Protocol):
    """`about` is one line for the list; `defaults` finish in 15 minutes on two cores (`laws`
    apart)."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    @property
    def defaults(self) -> Settings: ...

    def check(self, settings: Settings) -> None:
        """Raises ConfigError where the suite cannot be run so; nothing is loaded yet."""
        ...

    def measure(self, context: Context) -> None:
        """Adds what is missing to `context.results`, each sample as soon as it is there."""
        ...

    def report(self, context: Context) -> Report:
        """Tables from the samples alone; runs no model."""
        ...
