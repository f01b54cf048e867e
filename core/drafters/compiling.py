"""`jit`: compiles plain loops over arrays if numba is installed; otherwise they run in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["jit"]

try:
    from core.models.native.compiling import cached_entry as jit
except ImportError:
    F = TypeVar("F", bound=Callable[..., object])

    def jit(function: F) -> F:
        return function
