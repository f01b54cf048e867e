"""`python -m zoo tables`: counts for the drafter `table`, to be shipped with an LLM.

The LLM's distribution of the next token is counted instead of the token itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from core.config import checks
from core.drafters.count_table import ONCE, count_tokens, new_table, own_weights
from core.errors import ConfigError
from core.models.loading.count_file import FILE, rows_as_bytes
from zoo.distil import Teaching
from zoo.files import replace_file
from zoo.teacher_cache import TeacherCache

__all__ = ["count_texts", "write_counts"]

# Rows of the table while counting.
WORKING_ROWS = 1 << 22


def write_counts(teaching: Teaching, out: Path, num_rows: int) -> str:
    """Writes the `num_rows` rows with the largest `own_weights` into `out`. Raises ConfigError if
    `teaching.remembered` is 0."""
    checks.integer("rows", num_rows, 1, WORKING_ROWS)
    texts = teaching.rows()
    distributions = teaching.memory(texts)
    if distributions is None:
        raise ConfigError.of("remembered", 0, "1 or more tokens of each position, 8 say")
    length = teaching.of_one_length().preset.schedule.context
    rows, num_tokens = count_texts(texts, distributions, length)
    heaviest = rows[np.argsort(-own_weights(rows), kind="stable")[:num_rows]]
    path = out / FILE
    replace_file(path, lambda file: file.write(rows_as_bytes(heaviest)))
    return f"{path}: {len(heaviest):,} of {len(rows):,} rows, of {num_tokens:,} tokens"


def count_texts(
    texts: Mapping[str, np.ndarray], memory: TeacherCache, length: int
) -> tuple[np.ndarray, int]:
    """The rows (n, 16) counted over windows of `length` tokens, and the number of tokens."""
    table, num_tokens = new_table(WORKING_ROWS), 0
    for window in _windows(texts, length):
        top = memory.top_tokens(torch.from_numpy(window[None]))
        weights = (top.log_p[0].exp() * ONCE).round().long().numpy()
        # The last distribution is for the token after the window. Any id can stand for that token.
        count_tokens(table, np.append(window, 0), 1, top.ids[0].numpy(), weights)
        num_tokens += length
    return table[table[:, -1] > 0], num_tokens


def _windows(texts: Mapping[str, np.ndarray], length: int) -> Iterator[np.ndarray]:
    for row in texts.values():
        for start in range(0, (len(row) - 1) // length * length, length):
            yield np.asarray(row[start : start + length], np.int64)
