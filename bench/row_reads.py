"""Nanoseconds a token of reading random rows of tables, one row of each, token after token: which
rows is known only when the token before has been read, as in a draft. Compiled by numba where it is
installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from bench.table_plan import FeatureTable
from bench.timing import time_call
from lab.figures import median

try:
    from core.models.native.compiling import cached_entry as compiled
except ImportError:  # numba is missing: then Python's own time is measured
    F = TypeVar("F", bound=Callable[..., object])

    def compiled(function: F) -> F:
        return function


__all__ = ["row_read_ns"]

# A table begins at a cache line; numbers of 8 bytes.
LINE, NUMBER = 64, 8
PARTS = 5


def row_read_ns(tables: Sequence[FeatureTable], tokens: int, *, in_turn: bool = False) -> float:
    """The median of several parts of `tokens` tokens. A token's rows are read side by side, or
    `in_turn`: which row comes next is known only when the one before has been read. Row lengths
    are multiples of 8 bytes."""
    sizes = [-(-table.bytes // LINE) * LINE // NUMBER for table in tables]
    starts = np.cumsum([0, *sizes])
    memory = _from_line(int(starts[-1]))
    rows = np.array([table.rows for table in tables], np.int64)
    lengths = np.array([table.row_bytes // NUMBER for table in tables], np.int64)
    read = partial(_read_rows, memory, starts[:-1].astype(np.int64), rows, lengths, in_turn)
    of_part = max(1, tokens // PARTS)
    read(of_part)  # compiled, and caches in use
    return 1e9 * median([time_call(partial(read, of_part))[1] for _ in range(PARTS)]) / of_part


def _from_line(count: int) -> np.ndarray:
    """`count` ones from the beginning of a cache line on. Written, since pages that never were are
    all one page of zeros."""
    memory = np.ones(count + LINE // NUMBER, np.int64)
    skipped = -memory.ctypes.data % LINE // NUMBER
    return memory[skipped : skipped + count]


@compiled
def _read_rows(
    memory: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    lengths: np.ndarray,
    in_turn: bool,
    tokens: int,
) -> int:
    state = 1
    for _ in range(tokens):
        found = 0
        for table in range(starts.shape[0]):
            # Knuth's generator modulo 2^63; its upper 32 bits choose the row.
            state = (state * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            row = (state >> 31) * int(rows[table]) >> 32
            number = int(memory[int(starts[table]) + row * int(lengths[table])])
            if in_turn:
                state += number
            found += number
        state += found
    return state
