"""Which windows of tokens a training step sees: a mixture of domains, each read through in a new
order each time.

A pure function of seed and position, so a resumed run goes on where the last one stood. Knows
nothing of models.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.errors import ConfigError
from zoo.presets import Mixture

__all__ = ["DataOrder"]


class DataOrder:
    """Draws batches of windows. A new one with the `state()` of this one draws the next batch.
    `shifts`: each pass cuts its windows elsewhere; else the same ones come again."""

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
        self._starts: dict[str, tuple[int, np.ndarray]] = {}  # "domain/length" -> (pass, starts)

    def next_batch(self, size: int, length: int) -> np.ndarray:
        """`size` windows of `length` inputs and the token after them: int64, (size, length + 1)."""
        noise = np.random.default_rng((self._seed, self._num_batches))
        self._num_batches += 1
        picked = noise.choice(len(self._names), size=size, p=self._probabilities)
        return np.stack([self._next_window(int(index), length) for index in picked])

    def state(self) -> dict[str, object]:
        """Plain values that say how far this order has come."""
        return {"num_batches": self._num_batches, "num_drawn": dict(self._num_drawn)}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Goes to where another order of the same tokens, mixture and seed stood."""
        num_batches, num_drawn = state["num_batches"], state["num_drawn"]
        assert isinstance(num_batches, int) and isinstance(num_drawn, dict)
        self._num_batches, self._num_drawn = num_batches, dict(num_drawn)

    def _next_window(self, index: int, length: int) -> np.ndarray:
        row, key = self._rows[index], f"{self._names[index]}/{length}"
        # A pass that shifts its window borders by up to a length has room for one less.
        num_windows = (len(row) - (length if self._shifts else 1)) // length
        if num_windows < 1:
            raise ConfigError.of(
                "corpora",
                self._names[index],
                f"at least {2 * length} training tokens, not {len(row)}",
            )
        drawn = self._num_drawn.get(key, 0)
        self._num_drawn[key] = drawn + 1
        nth_pass, place = divmod(drawn, num_windows)
        start = self._pass_starts(index, length, nth_pass, num_windows)[place]
        return row[start : start + length + 1].astype(np.int64)

    def _pass_starts(self, index: int, length: int, nth_pass: int, num_windows: int) -> np.ndarray:
        key = f"{self._names[index]}/{length}"
        starts_of_pass = self._starts.get(key)
        if starts_of_pass is None or starts_of_pass[0] != nth_pass:
            noise = np.random.default_rng((self._seed, index, length, nth_pass))
            shift = noise.integers(length) if self._shifts else 0
            starts = shift + noise.permutation(num_windows) * length
            starts_of_pass = self._starts[key] = (nth_pass, starts)
        return starts_of_pass[1]
