"""Times random row reads from tables. For each token, the first 8 bytes of one row of each table
are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from bench.table_plan import FeatureTable
from bench.timing import time_call
from core.drafters.compiling import jit
from lab.figures import median

__all__ = ["new_memory", "row_read_ns"]

CACHE_LINE, INT64 = 64, 8  # bytes; each table begins at a cache line
PARTS = 5


def new_memory(size: int) -> np.ndarray:
    """`size` bytes for tables, as int64 (size / 8,), aligned to a cache line. The bytes are
    written, since untouched pages all map to the zero page."""
    memory = np.ones((size + CACHE_LINE) // INT64, np.int64)
    first = -memory.ctypes.data % CACHE_LINE // INT64
    return memory[first : first + size // INT64]


def row_read_ns(
    memory: np.ndarray, tables: Sequence[FeatureTable], tokens: int, *, dependent: bool = False
) -> float:
    """Nanoseconds per token: the median over PARTS equal parts of `tokens`. With `dependent`, each
    row's index depends on the row read before; otherwise a token's rows are independent. Row
    lengths must be multiples of 8 bytes.

    The tables are in `memory`, int64 (n,), one after another. Compare only measurements with the
    same `memory`: its page size matters. Raises ValueError if the tables need more than
    `memory`."""
    sizes = [-(-table.bytes // CACHE_LINE) * CACHE_LINE // INT64 for table in tables]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    if starts[-1] > len(memory):
        needed, size = INT64 * starts[-1], INT64 * len(memory)
        raise ValueError(f"tables need {needed} bytes; memory has {size}")
    rows = np.array([table.rows for table in tables], np.int64)
    lengths = np.array([table.row_bytes // INT64 for table in tables], np.int64)
    read = partial(_read_rows, memory, starts[:-1], rows, lengths, dependent)
    per_part = max(1, tokens // PARTS)
    read(per_part)  # compiles, and fills the caches
    return 1e9 * median([time_call(partial(read, per_part))[1] for _ in range(PARTS)]) / per_part


@jit
def _read_rows(
    memory: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    lengths: np.ndarray,
    dependent: bool,
    tokens: int,
) -> int:
    state = 1
    for _ in range(tokens):
        total = 0
        for table in range(starts.shape[0]):
            # Knuth's generator modulo 2^63; its upper 32 bits choose the row.
            state = (state * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            row = (state >> 31) * int(rows[table]) >> 32
            value = int(memory[int(starts[table]) + row * int(lengths[table])])
            if dependent:
                state += value
            total += value
        # The next token's rows depend on this token's rows.
        state += total
    return state
