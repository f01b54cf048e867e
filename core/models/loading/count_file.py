"""The file of next-token counts that comes with an LLM, for the drafter `table`. `python -m zoo
tables` makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from core.errors import ModelLoadError, one_line

__all__ = ["FILE", "read_counts", "rows_as_bytes"]

# In the LLM's folder, or in the folder of the SSMs that come with it.
FILE = "draft_table.counts"
_NAME = "rows"
# Numbers of a row: seven token ids, seven weights, a hash, a context's length.
# `core.drafters.count_table`, which `core.models` may not import, has the same numbers.
_ROW, _NUM_IDS, _HASH, _LENGTH = 16, 7, 14, 15
_LONGEST_CONTEXT = 3
# A stored weight: 4 times a weight of at most 2^24, plus the length (0 to 3) of the context after
# which the token was counted.
_LARGEST_WEIGHT = (1 << 24) * 4 + 3
# Bytes of 2^22 rows and of the file's header.
_LARGEST = (1 << 28) + 4096


def read_counts(folder: Path, vocab_size: int) -> np.ndarray | None:
    """The rows (n, 16) int32 of the file in `folder`, None without a file. Raises ModelLoadError
    for a file without such rows or with token ids that the LLM does not have."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _LARGEST:
            raise _refusal(path, f"it has more than {_LARGEST} bytes")
        rows = safetensors.numpy.load_file(path)[_NAME]
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise _refusal(path, one_line(error, 200)) from error
    if rows.dtype != np.int32 or rows.ndim != 2 or rows.shape[1] != _ROW:
        raise _refusal(path, f"its rows are {rows.dtype} {rows.shape}")
    ids, weights, lengths = rows[:, :_NUM_IDS], rows[:, _NUM_IDS:_HASH], rows[:, _LENGTH]
    if rows.size and (
        rows.min() < 0
        or ids.max() >= vocab_size
        or weights.max() > _LARGEST_WEIGHT
        or lengths.min() < 1
        or lengths.max() > _LONGEST_CONTEXT
    ):
        raise _refusal(path, "a token id, weight or length is out of range")
    return rows


def rows_as_bytes(rows: np.ndarray) -> bytes:
    """The file's contents."""
    return safetensors.numpy.save({_NAME: np.ascontiguousarray(rows, np.int32)})


def _refusal(path: Path, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"counts are {str(path)!r}: they cannot be read ({reason}); a file that `python -m zoo "
        "tables` wrote for this LLM, or none, is allowed"
    )
