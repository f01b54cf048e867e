"""Noise: the randomness of a run.

`SeededNoise` is counter-based: every uniform number is a pure function of seed and key.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

__all__ = [
    "Key",
    "Noise",
    "SeededNoise",
    "bases_of",
    "choose_distinct",
    "gumbel_rows",
    "gumbel_vectors",
    "to_int64",
]

Key = tuple[object, ...]
"""For a drafted token: ("draft", root position, drafter, ranks down to the parent, attempt). For a
coin: ("accept", root position, `Draws` down to the parent, attempt). For the LLM's own token:
("final", root position, `Draws` down to the node). `Draws`: see core/trees/verify/base.py. Coupled
drafts and `match` have Gumbel noise by position instead."""

# SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
# Random bits of a uniform number, as many as float64 holds exactly.
BITS = 53
# The largest number of positions with cached noise, float64 (V,) each.
CACHED_POSITIONS = 64
POSITIONS_PER_CALL = 4
"""Positions whose noise is computed in one call: four take less than three times as long as one."""


class Noise(Protocol):
    """All randomness of a run. Coupled drafts and `match` read the same `gumbel` at a position."""

    def coin(self, prob: float, key: Key) -> bool:
        """Whether u < `prob`, with u uniform in [0, 1)."""
        ...

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        """An index drawn in proportion to float64 `weights` (V,), which need not sum to 1."""
        ...

    def gumbel(self, position: int) -> torch.Tensor:
        """The LLM's Gumbel noise at a position, float64 (V,), indexed by token id."""
        ...


class SeededNoise:
    """See Noise. Uniform numbers of 53 bits, from counter-based hashes."""

    def __init__(self, seed: int, vocab_size: int, device: torch.device | str = "cpu") -> None:
        self.seed = seed
        self._vocab_size = vocab_size
        self._device = torch.device(device)
        self._gumbels: OrderedDict[int, torch.Tensor] = OrderedDict()

    def copy(self) -> SeededNoise:
        """The same noise with a cache of its own."""
        return SeededNoise(self.seed, self._vocab_size, self._device)

    def coin(self, prob: float, key: Key) -> bool:
        return self._uniform(key) < prob

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        cumulative = weights.double().cumsum(dim=0)
        target = self._uniform(key) * cumulative[-1]
        # `right=True` finds the first sum above the target: not even u = 0 chooses a weight of 0.
        index = int(torch.searchsorted(cumulative, target, right=True))
        # Rounding may give an index past the last positive weight.
        return min(index, int(weights.nonzero()[-1]))

    def gumbel(self, position: int) -> torch.Tensor:
        # A single `get`: while SSMs draft ahead, another thread may change the cache between two
        # look-ups.
        noise = self._gumbels.get(position)
        if noise is None:
            bases = [self.base(position + step) for step in range(POSITIONS_PER_CALL)]
            noise, *others = gumbel_rows(bases, self._vocab_size, self._device)
            self._gumbels[position] = noise
            for step, other in enumerate(others, 1):
                self._gumbels.setdefault(position + step, other)
            while len(self._gumbels) > CACHED_POSITIONS:
                self._gumbels.popitem(last=False)
        return noise

    def base(self, position: int) -> int:
        """The unsigned 64-bit hash base of `gumbel` at a position."""
        return _digest((self.seed, "target", position))

    def _uniform(self, key: Key) -> float:
        # In [0, 1): u < p is always true for p = 1 and never for p = 0.
        return (_digest((self.seed, *key)) >> (64 - BITS)) * 2.0**-BITS


def choose_distinct(noise: Noise, weights: torch.Tensor, count: int, key: Key) -> list[int]:
    """Draws up to `count` indices without replacement; fewer if fewer weights are positive.

    Distributed like the sorted order of Gumbel-top-k (Kool et al., arXiv 1903.06059).
    """
    weights = weights.clone()
    drawn: list[int] = []
    for attempt in range(count):
        if float(weights.sum()) <= 0.0:
            break
        drawn.append(noise.choose(weights, (*key, attempt)))
        weights[drawn[-1]] = 0.0
    return drawn


def gumbel_rows(
    bases: Sequence[int], size: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """-log(-log u_i) for i < size, float64 (bases, size). u_i is a hash of (base, i): the values do
    not depend on `size`."""
    if torch.device(device).type != "cpu":
        return gumbel_vectors(torch.tensor([to_int64(base) for base in bases], device=device), size)
    # As gumbel_vectors, in less time: NumPy has unsigned integers and works in place.
    x = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    x = x + np.array(bases, np.uint64)[:, None]
    scratch = np.empty_like(x)
    # Overflow is intended: arithmetic modulo 2^64.
    for bits, factor in ((30, MIX_1), (27, MIX_2), (31, 1)):
        x ^= np.right_shift(x, np.uint64(bits), out=scratch)
        x *= np.uint64(factor)
    x >>= np.uint64(64 - BITS)
    # At least 1: u = 0 would give infinite noise.
    uniform = torch.from_numpy(np.maximum(x, 1, out=x).astype(np.float64)).mul_(2.0**-BITS)
    return uniform.log_().neg_().log_().neg_()


def gumbel_vectors(bases: torch.Tensor, size: int) -> torch.Tensor:
    """As `gumbel_rows`, for a tensor `bases` of any shape (...): int64 with the bits of unsigned
    integers. Returns (..., size)."""
    counter = torch.arange(1, size + 1, dtype=torch.int64, device=bases.device)
    # int64 arithmetic wraps modulo 2^64, as the hash needs.
    x = counter * to_int64(GOLDEN) + bases[..., None]
    x = (x ^ _logical_shift(x, 30)) * to_int64(MIX_1)
    x = (x ^ _logical_shift(x, 27)) * to_int64(MIX_2)
    x = x ^ _logical_shift(x, 31)
    # u is strictly inside (0, 1): both logarithms are finite.
    uniform = _logical_shift(x, 64 - BITS).clamp_(min=1).double() * 2.0**-BITS
    return -(-uniform.log()).log()


def bases_of(noise: Noise, position: int, count: int) -> list[int]:
    """The hash bases of `count` positions from `position` on, as int64. `noise`: a SeededNoise."""
    assert isinstance(noise, SeededNoise), "only SeededNoise has hash bases"
    return [to_int64(noise.base(position + step)) for step in range(count)]


def _digest(key: Key) -> int:
    # Not Python's `hash`, which differs from process to process.
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def to_int64(value: int) -> int:
    """Reinterprets an unsigned 64-bit integer as int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _logical_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    # torch's >> keeps the sign; the hash needs zeros.
    return (x >> bits) & ((1 << (64 - bits)) - 1)
