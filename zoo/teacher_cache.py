"""Caches the teacher's most probable tokens for windows of texts, in files.

Windows have fixed positions, so that every epoch has the same windows.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from core.errors import ConfigError
from zoo.files import replace_file
from zoo.models import autocast
from zoo.tokenizer import token_id_dtype

__all__ = ["TeacherCache", "TopTokens"]

BLOCK = 32  # windows in a file
WINDOWS_A_PASS = 4


class TopTokens(NamedTuple):
    """The teacher's most probable tokens at each position, in descending order: `ids` int64 and
    log-probabilities `log_p` float32, both (batch, length, count)."""

    ids: Tensor
    log_p: Tensor


class TeacherCache:
    """Each of the `rows` is divided into windows of `length` inputs; `count` tokens are stored for
    each position. `folder`: for this teacher alone, since file names do not depend on the teacher.
    Safe to use from several threads."""

    def __init__(
        self,
        teacher: nn.Module,
        folder: Path,
        rows: Mapping[str, np.ndarray],
        length: int,
        count: int,
    ) -> None:
        self._teacher = teacher
        self._length, self._count = length, count
        self._windows: list[np.ndarray] = []
        self._files: list[Path] = []  # one for each block
        self._blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._indices: dict[bytes, int] = {}  # the index of each window, by its inputs
        self._lock = threading.Lock()
        for row in rows.values():
            self._add_windows(np.asarray(row), folder)

    def fill(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Computes all blocks that are not stored yet."""
        count = len(self._windows)
        for block in range(count):
            new = not self._files[block].is_file()
            self._window_tokens(block * BLOCK)
            if new:
                say(f"computed the LLM's tokens for {block + 1} of {count} blocks of text")

    def top_tokens(self, inputs: Tensor) -> TopTokens:
        """The tokens for the inputs of windows, (batch, length); computes blocks that are not
        stored yet. Raises KeyError for a window that is in none of the rows."""
        indices = [self._indices[_key(window)] for window in inputs.cpu().numpy()]
        ids, log_p = zip(*(self._window_tokens(index) for index in indices), strict=True)
        device = inputs.device
        return TopTokens(
            torch.from_numpy(np.stack(ids).astype(np.int64)).to(device),
            torch.from_numpy(np.stack(log_p)).to(device),
        )

    def _add_windows(self, row: np.ndarray, folder: Path) -> None:
        # A window's last input needs a token after it, which is its target.
        number = (len(row) - 1) // self._length
        inputs = row[: number * self._length].reshape(number, self._length)
        description = f"{self._length} {self._count} {hashlib.sha256(inputs.tobytes()).hexdigest()}"
        name = hashlib.sha256(description.encode()).hexdigest()[:16]
        for block in range(0, number, BLOCK):
            self._files.append(folder / f"{name}-{block // BLOCK:04}.npz")
            windows = inputs[block : block + BLOCK]
            for i, window in enumerate(windows):
                # A window that occurs twice has the same tokens both times.
                self._indices.setdefault(_key(window), len(self._windows) * BLOCK + i)
            self._windows.append(windows)

    def _window_tokens(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        block, number = divmod(index, BLOCK)
        if block not in self._blocks:
            with self._lock:
                if block not in self._blocks:  # another thread may have loaded it meanwhile
                    self._blocks[block] = self._load_block(block)
        ids, log_p = self._blocks[block]
        return ids[number], log_p[number]

    def _load_block(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        path, shape = self._files[block], (len(self._windows[block]), self._length, self._count)
        if not path.is_file():
            ids, log_p = self._teacher_top_k(self._windows[block])
            replace_file(path, lambda file: np.savez(file, ids=ids, log_p=log_p))
            return ids, log_p
        try:
            # Opened here, since np.load does not close a damaged file that it has opened.
            with path.open("rb") as file, np.load(file) as arrays:
                ids, log_p = arrays["ids"], arrays["log_p"]
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise ConfigError.of(
                "out", str(path), "a readable block of cached tokens; remove it"
            ) from error
        if ids.shape != shape or log_p.shape != shape:
            raise ConfigError.of("out", str(path), f"a block of shape {shape}; remove it")
        return ids, log_p

    @torch.no_grad()
    def _teacher_top_k(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        device = next(self._teacher.parameters()).device
        batches = []
        for start in range(0, len(windows), WINDOWS_A_PASS):
            part = torch.from_numpy(windows[start : start + WINDOWS_A_PASS].astype(np.int64))
            # bfloat16 is precise enough for the teacher's probabilities.
            with autocast(device):
                logits = self._teacher(input_ids=part.to(device), use_cache=False).logits
            batches.append(logits.float().log_softmax(-1).topk(self._count, -1))
        ids = torch.cat([each.indices for each in batches]).cpu().numpy()
        log_p = torch.cat([each.values for each in batches]).cpu().numpy()
        return ids.astype(token_id_dtype(logits.shape[-1])), log_p


def _key(window: np.ndarray) -> bytes:
    return window.astype(np.uint32).tobytes()
