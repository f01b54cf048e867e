"""Products of vectors with weights of 32 and of 16 bits."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from core.models.native import layers  # noqa: E402
from core.models.native.compiling import cached_entry  # noqa: E402
from core.models.native.layers import source_hash_of  # noqa: E402
from core.models.native.products import products  # noqa: E402

COMPILED = Path(layers.__file__).parent
INPUTS, OUTPUTS = 700, 96


@cache
def runner() -> Any:
    source_hash = source_hash_of(COMPILED)

    @cached_entry
    def run(x, inputs, w, y, n, halved):  # type: ignore[no-untyped-def]
        _ = source_hash
        zero, one = np.int64(0), np.int64(1)
        outputs = y.shape[0] // n
        products(x, zero, inputs, w, zero, y, zero, outputs, n, (zero, one), halved)  # type: ignore[call-arg]

    return run


def multiply(x: Any, w: Any, halved: Any = None) -> Any:
    """`w`: blocks of 32 outputs each. `halved`: the buffer for the vectors in bfloat16."""
    n, inputs = x.shape
    y = np.empty((n, 32 * len(w)), dtype=np.float32)
    scratch = np.empty(x.size, np.uint16) if halved is None else halved
    runner()(x.ravel(), inputs, w.ravel(), y.ravel(), n, scratch)
    return y


def weights() -> tuple[Any, Any]:
    weights_32 = np.random.default_rng(3).standard_normal((3, INPUTS, 32)).astype(np.float32)
    return weights_32, (weights_32.view(np.uint32) >> 16).astype(np.uint16)


def vectors() -> Iterator[Any]:
    rng = np.random.default_rng(4)
    for n in range(1, 27):
        x = rng.standard_normal((n, INPUTS)).astype(np.float32)
        x[0] = 0.1 * np.arange(INPUTS)
        yield x


def from_upper_halves(upper: Any) -> Any:
    return (upper.astype(np.uint32) << 16).view(np.float32)


def as_matrix(blocks: Any) -> Any:
    return blocks.transpose(1, 0, 2).reshape(INPUTS, OUTPUTS)


def digest() -> str:
    """A hash of the products, which must equal numpy's products up to rounding."""
    from core.models.native.compiling import interleaves_weights, registers
    from core.models.native.weight_formats import interleave

    digest_of_products = hashlib.sha256()
    weights_32, upper = weights()
    interleaved = interleave(upper, registers()[0]) if interleaves_weights() else None
    for w, matrix in (
        (weights_32, as_matrix(weights_32)),
        (upper, as_matrix(from_upper_halves(upper))),
    ):
        first = None
        for x in vectors():
            y = multiply(x, w)
            np.testing.assert_allclose(y, x @ matrix, rtol=1e-3, atol=0.05)
            first = y[0] if first is None else first
            assert np.array_equal(y[0], first), "the other vectors do not change the product"
            digest_of_products.update(y.tobytes())
            if w is upper and interleaved is not None:
                assert np.array_equal(multiply(x, interleaved), y)
                assert not np.array_equal(multiply(x, upper.view(np.int16)), y)
    return digest_of_products.hexdigest()


def test_products_agree_with_numpy() -> None:
    assert len(digest()) == 64


def test_pairs_are_multiplied_in_bfloat16() -> None:
    from core.models.native.compiling import multiplies_pairs

    if not multiplies_pairs():
        pytest.skip("this processor multiplies no pairs of bfloat16 (AVX512_BF16)")
    _, upper = weights()
    pairs = upper[:, ::2].astype(np.uint32) | upper[:, 1::2].astype(np.uint32) << np.uint32(16)
    matrix, first = as_matrix(from_upper_halves(upper)).astype(np.float64), None
    for x in vectors():
        y = multiply(x, pairs)
        halved = torch.from_numpy(x).bfloat16().double().numpy()
        np.testing.assert_allclose(y, halved @ matrix, rtol=1e-5, atol=5e-3)
        # Negative control: the products of unrounded vectors differ.
        assert np.abs(y - x.astype(np.float64) @ matrix).max() > 0.02
        first = y[0] if first is None else first
        assert np.array_equal(y[0], first)
