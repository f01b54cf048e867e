"""Speculation length policies, by name: how many steps the next draft takes. 0 is plain decoding.

A policy is fresh for each run. `fixed` alone exists so far; what a policy may learn from is in
`observe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from core.config import SpeculationConfig

__all__ = ["LENGTH_POLICIES", "Fixed", "LengthPolicy"]


class LengthPolicy(Protocol):
    """Chooses s; told after each round what came of it."""

    def next(self) -> int:
        """The speculation length of the coming round."""
        ...

    def observe(self, length: int, num_accepted: int, verify_ms: float) -> None:
        """A round drafted with `length` accepted `num_accepted` at this cost."""
        ...


class Fixed:
    """Always the configured length."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._length = config.speculation_length

    def next(self) -> int:
        return self._length

    def observe(self, length: int, num_accepted: int, verify_ms: float) -> None:
        """Nothing is learnt."""


LENGTH_POLICIES: Mapping[str, Callable[[SpeculationConfig], LengthPolicy]] = MappingProxyType(
    {"fixed": Fixed}
)
