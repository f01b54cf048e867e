"""How functions are compiled: what the compiler may do with sums, and whether it writes a function
into its callers.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import PickleError
from types import MappingProxyType
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.errors import NumbaError

__all__ = ["COMPILER_FAULTS", "entry", "exact", "free", "inlined", "kept"]

IN_ORDER = ("contract", "nnan", "nsz")
# Only compiled code calls them: without a way in from Python a sixth of the compiling is saved.
INNER = MappingProxyType({"no_cpython_wrapper": True, "no_cfunc_wrapper": True})
# Nothing compiled makes an array: to count who holds those that are handed over took a fifth of a
# pass of eight tokens.
UNCOUNTED = MappingProxyType({"_nrt": False})

# What numba raises, and what the files do in which it keeps what it made.
COMPILER_FAULTS = (
    NumbaError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    PickleError,
    RuntimeError,
    TypeError,
    ValueError,
)

F = TypeVar("F", bound=Callable[..., object])


def exact(function: F) -> F:
    """Sums stay in their order."""
    return _compiled(function, IN_ORDER, **INNER)


def free(function: F) -> F:
    """Sums may be made in parts, which for one length are always the same."""
    return _compiled(function, (*IN_ORDER, "reassoc"), **INNER)


def entry(function: F) -> F:
    """As `exact`, for Python to call."""
    return _compiled(function, IN_ORDER)


def kept(function: F) -> F:
    """As `entry`, and what was made is kept for the next start."""
    return _compiled(function, IN_ORDER, cache=True)


def inlined(function: F) -> F:
    """Written into its callers: what is called is compiled for itself and for each caller."""
    made: Any = njit(inline="always")(function)
    return cast(F, made)


def _compiled(function: F, math: tuple[str, ...], **options: bool) -> F:
    make: Any = njit
    made = make(fastmath=set(math), nogil=True, error_model="numpy", **UNCOUNTED, **options)
    return cast(F, made(function))
