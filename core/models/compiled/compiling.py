"""How functions are compiled: what the compiler may do with sums, and whether it writes a function
into its callers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["exact", "free", "inlined", "kept"]

F = TypeVar("F", bound=Callable[..., object])


def exact(function: F) -> F:
    """Sums stay in their order."""
    return _compiled(function, {"contract", "nnan", "nsz"})


def free(function: F) -> F:
    """Sums may be made in parts, which for one length are always the same."""
    return _compiled(function, {"contract", "nnan", "nsz", "reassoc"})


def kept(function: F) -> F:
    """As `exact`, and what was made is kept for the next start."""
    return _compiled(function, {"contract", "nnan", "nsz"}, cache=True)


def inlined(function: F) -> F:
    """Written into its callers: what is called is compiled for itself and for each caller."""
    made: Any = njit(inline="always")(function)
    return cast(F, made)


def _compiled(function: F, math: set[str], cache: bool = False) -> F:
    made: Any = njit(fastmath=math, nogil=True, error_model="numpy", cache=cache)(function)
    return cast(F, made)
