"""Attention of one head, for several sizes and cache formats."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from core.models.native.compiling import cached_entry, registers  # noqa: E402
from core.models.native.elementwise import attend  # noqa: E402
from core.models.native.layers import source_hash_of  # noqa: E402
from tests.core.models.native.test_registers import COMPILED, digest, from_upper_halves  # noqa: E402

ROOT = Path(__file__).parents[4]
# Environment variables with which numba compiles for an older processor.
OLDER = {
    "haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+avx,+fma"},
    "no avx": {"NUMBA_ENABLE_AVX": "0"},
}
CHILD = """
from core.models.native.compiling import multiplies_pairs, registers
from tests.core.models.native.test_attention import SIZES, check, check_together
from tests.core.models.native.test_registers import digest

assert registers() == (8, 6) and not multiplies_pairs()
for size in SIZES:
    check(size, halved=False)
    check(size, halved=True)
check_together()
print(digest())
"""
# Head sizes: below one vector register, whole registers, and whole registers with a remainder.
SIZES = (2, 16, 40, 64, 72, 128, 200)


def head_of(size: int, halved: bool) -> tuple[Any, Any, Any, Any]:
    """`halved`: keys and values are the upper 16 bits of float32 numbers."""
    rng = np.random.default_rng(size)
    q, keys, values = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((size,), (30, size), (30, size))
    )
    if halved:
        keys, values = ((one.view(np.uint32) >> 16).astype(np.uint16) for one in (keys, values))
    return q, keys, values, np.array([0, 1, 2, 5, 11, 12, 13, 29], np.int32)


def attention(q: Any, keys: Any, values: Any, slots_read: Any, base: int = 0) -> Any:
    return batched_attention([q], keys, values, [slots_read], base)[0]


@cache
def compiled_attend() -> Any:
    source_hash = source_hash_of(COMPILED)

    @cached_entry
    def run(q, keys, values, bases, seen, counts, extent, weights, out, step):  # type: ignore[no-untyped-def]
        _ = source_hash
        attend(q, keys, values, bases, (seen, counts, extent), weights, (out, step))

    return run


def batched_attention(
    q: Sequence[Any], keys: Any, values: Any, slots_read: Sequence[Any], base: int = 0
) -> Any:
    """Attention of several tokens, (tokens, size). `base`: the offset of the head in the flattened
    `keys` and `values`."""
    size, extent = len(q[0]), max(map(len, slots_read)) + 3
    slots_of_tokens = np.full((len(q), extent), 1 << 20, np.int32)
    for row, own in zip(slots_of_tokens, slots_read, strict=True):
        row[: len(own)] = own
    out = np.full((len(q), size + 5), np.nan, np.float32)
    compiled_attend()(
        np.concatenate(q), keys.reshape(-1), values.reshape(-1),
        np.full(len(q), base, np.int64), slots_of_tokens.reshape(-1),
        np.array([len(own) for own in slots_read]), extent,
        np.full(len(q) * (extent + 16), np.nan, np.float32), out.reshape(-1), size + 5,
    )  # fmt: skip
    assert np.isnan(out[:, size:]).all(), "memory after a row is not written"
    return out[:, :size]


def reference(q: Any, keys: Any, values: Any, slots_read: Any) -> Any:
    if keys.dtype == np.uint16:
        keys, values = from_upper_halves(keys), from_upper_halves(values)
    scores = keys[slots_read].astype(np.float64) @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights @ values[slots_read] / weights.sum()


def check(size: int, halved: bool) -> None:
    q, keys, values, slots_read = head_of(size, halved)
    result = attention(q, keys, values, slots_read)
    np.testing.assert_allclose(result, reference(q, keys, values, slots_read), atol=2e-6)
    # Negative control: without the last slot the result differs.
    assert np.abs(result - reference(q, keys, values, slots_read[:-1])).max() > 1e-3
    # With this `base`, the head begins 5 slots later.
    later = attention(q, keys, values, slots_read[:3], base=5 * size)
    np.testing.assert_allclose(later, reference(q, keys, values, slots_read[:3] + 5), atol=2e-6)
    one = attention(q, keys, values, slots_read[3:4])
    np.testing.assert_allclose(one, reference(q, keys, values, slots_read[3:4]), atol=2e-6)


def check_together() -> None:
    size, slots = 72, 200
    rng = np.random.default_rng(1)
    keys, values = (rng.standard_normal((slots, size)).astype(np.float32) for _ in range(2))
    q = [rng.standard_normal(size).astype(np.float32) for _ in range(6)]
    counts = (1, 63, 64, 65, 131, 200)
    slots_read = [np.sort(rng.permutation(slots)[:count]).astype(np.int32) for count in counts]
    together = batched_attention(q, keys, values, slots_read)
    for one, own, row in zip(q, slots_read, together, strict=True):
        np.testing.assert_allclose(row, reference(one, keys, values, own), atol=2e-6)
        assert np.array_equal(row, attention(one, keys, values, own))


def test_tokens_in_one_call_have_the_same_bits_as_alone() -> None:
    check_together()


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention_agrees_with_double_precision(size: int, halved: bool) -> None:
    check(size, halved)


@pytest.mark.nightly
@pytest.mark.parametrize("older", OLDER)
def test_an_older_processor_computes_the_same_products_and_attention(
    older: str, tmp_path: Path
) -> None:
    variables = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path), **OLDER[older]}
    child = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == digest()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "avx512f" in cpu.read_text():
        assert registers() == (16, 12), "otherwise both processes used the same registers"
