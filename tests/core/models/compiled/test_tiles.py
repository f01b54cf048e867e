"""Products in tiles: what they multiply is what it was, a float32 to its last digit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from core.models.compiled.features import multiplies_tiles

# More than one stretch of inputs, whose last is no whole one.
INPUTS, OUTPUTS = 736, 96


needs_tiles = pytest.mark.skipif(
    not multiplies_tiles(),
    reason="this processor multiplies no tiles (AMX), or the system does not let us",
)


def multiplied(x: Any, w: Any) -> Any:
    """Products of n vectors (n, INPUTS) with blocks of weights, (n, OUTPUTS)."""
    from core.models.compiled.compiling import entry
    from core.models.compiled.kinds import TILE
    from core.models.compiled.products import products

    @entry
    def run(x, w, y, n, halved):  # type: ignore[no-untyped-def]
        zero, one = np.int64(0), np.int64(1)
        products(x, zero, INPUTS, w, zero, y, zero, OUTPUTS, n, (zero, one), halved)  # type: ignore[call-arg]

    y = np.empty((len(x), OUTPUTS), dtype=np.float32)
    # Whatever else is in a tile: were it looked at, sums would be no numbers.
    beside = np.full((len(x) + TILE) * INPUTS * 3, 0x7FC0, np.uint16)
    run(x.ravel(), w.ravel(), y.ravel(), len(x), beside)
    return y


def weights() -> tuple[Any, Any]:
    """Two bfloat16 in each of (OUTPUTS / 32, INPUTS / 2, 32) elements; and their matrix (INPUTS,
    OUTPUTS) float64."""
    draw = np.random.default_rng(3)
    upper = (draw.standard_normal((3, INPUTS, 32)).astype(np.float32).view(np.uint32)) >> 16
    meant = (upper << np.uint32(16)).view(np.float32).astype(np.float64)
    return upper[:, ::2] | upper[:, 1::2] << np.uint32(16), meant.transpose(1, 0, 2).reshape(
        INPUTS, OUTPUTS
    )


def vectors() -> Iterator[Any]:
    """1 to 70 of them, the first ones of the same."""
    draw = np.random.default_rng(4).standard_normal((70, INPUTS)).astype(np.float32)
    for n in (*range(1, 34), 47, 70):
        yield draw[:n]


@needs_tiles
def test_float32_is_multiplied_as_such() -> None:
    """In three parts; the same bits whatever is beside a vector."""
    pairs, matrix = weights()
    alone: list[Any] = []
    for x in vectors():
        y = multiplied(x, pairs.view(np.int32))
        meant = x.astype(np.float64) @ matrix
        size = np.abs(x.astype(np.float64)) @ np.abs(matrix)
        # Of sums as long as these, float32's own rounding; 2 ** -16 would be that of two parts.
        assert (np.abs(y - meant) <= 2**-21 * size).all()
        alone += [
            multiplied(x[i : i + 1], pairs.view(np.int32))[0] for i in range(len(alone), len(x))
        ]
        assert np.array_equal(y, alone)


@needs_tiles
def test_a_model_in_bfloat16_rounds_to_it() -> None:
    """Both factors rounded, sums in float32; the same bits whatever is beside a vector."""
    import torch

    pairs, matrix = weights()
    alone: list[Any] = []
    for x in vectors():
        y = multiplied(x, pairs.view(np.int64))
        rounded = torch.from_numpy(x).bfloat16().double().numpy()
        size = np.abs(rounded) @ np.abs(matrix)
        assert (np.abs(y - rounded @ matrix) <= 2**-21 * size).all()
        # Negative control: of numbers that were not rounded it is not the product.
        unrounded = x.astype(np.float64) @ matrix
        assert (np.abs(y - unrounded) > 2**-21 * size).any()
        alone += [
            multiplied(x[i : i + 1], pairs.view(np.int64))[0] for i in range(len(alone), len(x))
        ]
        assert np.array_equal(y, alone)


def test_parts_add_up_to_the_number() -> None:
    """Whatever its size, but for what is next to nothing."""
    from core.models.compiled.compiling import entry
    from core.models.compiled.products import parted

    @entry
    def run(x, to):  # type: ignore[no-untyped-def]
        parted(x, np.int64(8), np.int64(3), to)  # type: ignore[call-arg]

    draw = np.random.default_rng(5)
    x = (draw.standard_normal(800) * 10.0 ** draw.integers(-25, 30, 800)).astype(np.float32)
    to = np.empty(2400, np.uint16)
    run(x, to)
    parts = (to.astype(np.uint32) << 16).view(np.float32).reshape(100, 3, 8)
    assert np.array_equal((parts[:, 2] + parts[:, 1] + parts[:, 0]).ravel(), x)
    assert not np.array_equal((parts[:, 1] + parts[:, 0]).ravel(), x), "two are too few"
