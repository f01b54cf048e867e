"""`jit`: plain loops over arrays as machine code where numba is installed; slower, the same
where it is not."""

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
