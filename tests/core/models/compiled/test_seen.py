"""Attention of one head over the slots that it sees: whatever its size, however they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tests.core.models.compiled.test_registers import LESSER, in_child, meant  # noqa: E402

CHILD = """
from core.models.compiled.registers import registers
from tests.core.models.compiled.test_seen import SIZES, check

assert registers()[0] == 8
for size in SIZES:
    check(size, halved=False)
    check(size, halved=True)
"""
# Less than a vector, whole vectors, some and a rest, more than are looked at together.
SIZES = (2, 16, 40, 64, 72, 128, 200)


def head_of(size: int, halved: bool) -> tuple[Any, Any, Any, Any]:
    """Query, keys and values of 30 slots, and which of them are seen."""
    draw = np.random.default_rng(size)
    q, keys, values = (
        draw.standard_normal(shape).astype(np.float32)
        for shape in ((size,), (30, size), (30, size))
    )
    if halved:
        keys, values = ((one.view(np.uint32) >> 16).astype(np.uint16) for one in (keys, values))
    return q, keys, values, np.array([0, 1, 2, 5, 11, 12, 13, 29], np.int32)


def attention(q: Any, keys: Any, values: Any, seen: Any, base: int = 0) -> Any:
    from core.models.compiled.compiling import entry
    from core.models.compiled.parts import attended

    @entry
    def run(q, keys, values, base, seen, weights, to):  # type: ignore[no-untyped-def]
        attended(q, keys, values, base, seen, weights, to)

    to = np.full(len(q), np.nan, np.float32)
    weights = np.full(len(keys), np.nan, np.float32)
    run(q, keys.reshape(-1), values.reshape(-1), np.int64(base), seen, weights, to)
    return to


def told(q: Any, keys: Any, values: Any, seen: Any) -> Any:
    """What it is, in double precision."""
    if keys.dtype == np.uint16:
        keys, values = meant(keys), meant(values)
    scores = keys[seen].astype(np.float64) @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights @ values[seen] / weights.sum()


def check(size: int, halved: bool) -> None:
    q, keys, values, seen = head_of(size, halved)
    found = attention(q, keys, values, seen)
    np.testing.assert_allclose(found, told(q, keys, values, seen), atol=2e-6)
    # Negative control: with a slot more or less it is something else.
    assert np.abs(found - told(q, keys, values, seen[:-1])).max() > 1e-3
    # From where the head begins.
    later = attention(q, keys, values, seen[:3], base=5 * size)
    np.testing.assert_allclose(later, told(q, keys, values, seen[:3] + 5), atol=2e-6)
    one = attention(q, keys, values, seen[3:4])
    np.testing.assert_allclose(one, told(q, keys, values, seen[3:4]), atol=2e-6)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention_is_what_it_is_in_double_precision(size: int, halved: bool) -> None:
    check(size, halved)


@pytest.mark.parametrize("lesser", LESSER)
def test_and_in_the_registers_of_a_lesser_processor(lesser: str, tmp_path: Path) -> None:
    in_child(CHILD, lesser, tmp_path)
