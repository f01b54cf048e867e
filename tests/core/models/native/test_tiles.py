"""Products in tiles (AMX)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from core.models.native.compiling import multiplies_tiles
from core.models.native.weight_formats import TILE
from tests.core.models.native.test_registers import multiply

# More inputs than `products.STRETCH`, and not a multiple of it.
INPUTS, OUTPUTS = 736, 96


needs_tiles = pytest.mark.skipif(
    not multiplies_tiles(),
    reason="this processor multiplies no tiles (AMX), or the system does not allow it",
)


def in_tiles(x: Any, w: Any) -> Any:
    """Unused parts of tiles hold NaN: a product would be NaN if such a part were read."""
    return multiply(x, w, np.full((len(x) + TILE) * INPUTS * 3, 0x7FC0, np.uint16))


def weights() -> tuple[Any, Any]:
    """Pairs of bfloat16 weights, (OUTPUTS / 32, INPUTS / 2, 32), and the same weights as a matrix,
    (INPUTS, OUTPUTS)."""
    rng = np.random.default_rng(3)
    upper = (rng.standard_normal((3, INPUTS, 32)).astype(np.float32).view(np.uint32)) >> 16
    values = (upper << np.uint32(16)).view(np.float32).astype(np.float64)
    return upper[:, ::2] | upper[:, 1::2] << np.uint32(16), values.transpose(1, 0, 2).reshape(
        INPUTS, OUTPUTS
    )


def vectors() -> Iterator[Any]:
    every = np.random.default_rng(4).standard_normal((70, INPUTS)).astype(np.float32)
    for n in (*range(1, 34), 47, 70):
        yield every[:n]


def check(view: type[Any], factor: Callable[[Any], Any]) -> float:
    """Asserts that the products of vectors x are the exact products of `factor(x)`, up to rounding.
    Returns the largest difference from the exact products of x, in units of this rounding. `view`:
    the type of the weights, which selects the instruction."""
    pairs, matrix = weights()
    alone: list[Any] = []
    largest = 0.0
    for x in vectors():
        y, size = in_tiles(x, pairs.view(view)), np.abs(x.astype(np.float64)) @ np.abs(matrix)
        rounding = 2**-21 * size
        assert (np.abs(y - factor(x) @ matrix) <= rounding).all()
        alone += [in_tiles(x[i : i + 1], pairs.view(view))[0] for i in range(len(alone), len(x))]
        assert np.array_equal(y, alone)
        largest = max(largest, float((np.abs(y - x.astype(np.float64) @ matrix) / rounding).max()))
    return largest


@needs_tiles
def test_float32_is_multiplied_exactly() -> None:
    """Each value is split into three bfloat16 parts."""
    assert check(np.int32, lambda x: x.astype(np.float64)) <= 1


@needs_tiles
def test_vectors_of_a_bfloat16_model_are_rounded_to_bfloat16() -> None:
    largest = check(np.int64, lambda x: torch.from_numpy(x).bfloat16().double().numpy())
    assert largest > 1, "not the product of unrounded vectors"


def test_three_parts_add_up_to_the_number() -> None:
    from core.models.native.compiling import entry
    from core.models.native.products import split_bfloat16

    @entry
    def run(x, out):  # type: ignore[no-untyped-def]
        split_bfloat16(x, np.int64(8), np.int64(3), out)  # type: ignore[call-arg]

    rng = np.random.default_rng(5)
    x = (rng.standard_normal(800) * 10.0 ** rng.integers(-25, 30, 800)).astype(np.float32)
    out = np.empty(2400, np.uint16)
    run(x, out)
    parts = (out.astype(np.uint32) << 16).view(np.float32).reshape(100, 3, 8)
    assert np.array_equal((parts[:, 2] + parts[:, 1] + parts[:, 0]).ravel(), x)
    assert not np.array_equal((parts[:, 1] + parts[:, 0]).ravel(), x), "two parts are too few"
