"""Nanoseconds a token of reading random rows of tables, one row of each, token after token: which
rows is known only when the token before has been read, as in a draft. Compiled by numba where it is
installed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from bench.table_plan import FeatureTable
from bench.timing import time_call
from core.drafters.compiling import jit
from lab.figures import median

__all__ = ["new_memory", "row_read_ns"]

# A table begins at a cache line; numbers of 8 bytes.
LINE, NUMBER = 64, 8
PARTS = 5


def new_memory(size: int) -> np.ndarray:
    """So many bytes for tables, from the beginning of a cache line on. Written, since pages that
    never were are all one page of zeros."""
    memory = np.ones((size + LINE) // NUMBER, np.int64)
    skipped = -memory.ctypes.data % LINE // NUMBER
    return memory[skipped : skipped + size // NUMBER]


def row_read_ns(
    memory: np.ndarray, tables: Sequence[FeatureTable], tokens: int, *, in_turn: bool = False
) -> float:
    """The median of several parts of `tokens` tokens. A token's rows are read side by side, or
    `in_turn`: which row comes next is known only when the one before has been read. Row lengths
    are multiples of 8 bytes.

    The tables lie in `memory`, one after another. What is compared should lie in the same: the size
    of its pages, which the system chooses, decides as much as the number of reads does.
    """
    sizes = [-(-table.bytes // LINE) * LINE // NUMBER for table in tables]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    if starts[-1] > len(memory):
        raise ValueError(f"{NUMBER * starts[-1]} bytes of tables in {NUMBER * len(memory)}")
    rows = np.array([table.rows for table in tables], np.int64)
    lengths = np.array([table.row_bytes // NUMBER for table in tables], np.int64)
    read = partial(_read_rows, memory, starts[:-1], rows, lengths, in_turn)
    of_part = max(1, tokens // PARTS)
    read(of_part)  # compiled, and caches in use
    return 1e9 * median([time_call(partial(read, of_part))[1] for _ in range(PARTS)]) / of_part


@jit
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
