"""Draws the windows of tokens for training from a mixture of domains, shuffled in every epoch.

The order is a pure function of seed and position, so that a resumed run continues with the next
batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.errors import ConfigError
from core.plurals import number_of
from zoo.presets import Mixture

__all__ = ["DataOrder"]


class DataOrder:
    """Draws batches of windows. `shifts`: whether each epoch draws a new shift of the windows."""

    def __init__(
        self, tokens: Mapping[str, np.ndarray], mixture: Mixture, seed: int, *, shifts: bool = True
    ) -> None:
        missing = [name for name, _ in mixture if name not in tokens]
        if missing:
            raise ConfigError.of(
                "mixture", ", ".join(missing), f"prepared domains: {', '.join(tokens)}"
            )
        self._names = [name for name, _ in mixture]
        self._rows = [tokens[name] for name in self._names]
        weights = np.array([weight for _, weight in mixture], dtype=np.float64)
        self._probabilities = weights / weights.sum()
        self._seed, self._shifts = seed, shifts
        self._num_batches = 0
        self._num_drawn: dict[str, int] = {}  # windows drawn, by "domain/length"
        self._starts: dict[str, tuple[int, np.ndarray]] = {}  # "domain/length" -> (epoch, starts)

    def next_batch(self, size: int, length: int) -> np.ndarray:
        """`size` windows of `length` inputs and the token after them: int64, (size, length + 1)."""
        # Each batch has its own generator, so that the position alone is the state.
        noise = np.random.default_rng((self._seed, self._num_batches))
        self._num_batches += 1
        domains = noise.choice(len(self._names), size=size, p=self._probabilities)
        return np.stack([self._next_window(int(index), length) for index in domains])

    def state(self) -> dict[str, object]:
        """The position in the order, as plain values."""
        # A checkpoint is read with `weights_only`, which refuses arbitrary objects.
        return {"num_batches": self._num_batches, "num_drawn": dict(self._num_drawn)}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Resumes at the `state` of an order of the same tokens, mixture and seed."""
        num_batches, num_drawn = state["num_batches"], state["num_drawn"]
        assert isinstance(num_batches, int) and isinstance(num_drawn, dict)
        self._num_batches, self._num_drawn = num_batches, dict(num_drawn)

    def _next_window(self, index: int, length: int) -> np.ndarray:
        row, key = self._rows[index], f"{self._names[index]}/{length}"
        # Room for the largest shift, `length` - 1, and for the token after the last window.
        reserved = length if self._shifts else 1
        num_windows = (len(row) - reserved) // length
        if num_windows < 1:
            raise ConfigError.of(
                "corpora",
                self._names[index],
                f"at least {number_of(length + reserved, 'training token')}, not {len(row)}",
            )
        num_drawn = self._num_drawn.get(key, 0)
        self._num_drawn[key] = num_drawn + 1
        epoch, number = divmod(num_drawn, num_windows)
        start = self._epoch_starts(index, length, epoch, num_windows)[number]
        return row[start : start + length + 1].astype(np.int64)

    def _epoch_starts(self, index: int, length: int, epoch: int, num_windows: int) -> np.ndarray:
        key = f"{self._names[index]}/{length}"
        entry = self._starts.get(key)
        if entry is None or entry[0] != epoch:
            noise = np.random.default_rng((self._seed, index, length, epoch))
            shift = noise.integers(length) if self._shifts else 0
            starts = shift + noise.permutation(num_windows) * length
            entry = self._starts[key] = (epoch, starts)
        return entry[1]
