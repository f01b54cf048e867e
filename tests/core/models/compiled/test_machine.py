"""Products by the registers that a processor has: the same bits, whichever there are."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ROOT = Path(__file__).parents[4]
# Where numba is told of no AVX-512, it makes no use of it either.
CHILD = """
import llvmlite.binding as machine

found = machine.get_host_cpu_features()
for name in [name for name in found if name.startswith(("avx512", "evex512", "avx10"))]:
    found[name] = False
machine.get_host_cpu_features = lambda: found

from core.models.compiled.machine import registers
from tests.core.models.compiled.test_machine import digest

print(*registers(), digest())
"""


def digest() -> str:
    """Of the products of 1 to 26 vectors with weights of 16 and of 32 bits; asserts that they are
    numpy's, but for the order of sums."""
    import numpy as np

    from core.models.compiled.compiling import entry
    from core.models.compiled.described import BLOCK
    from core.models.compiled.products import products

    @entry
    def multiplied(x, inputs, w, y, step, n):  # type: ignore[no-untyped-def]
        zero = np.int64(0)
        products(x, zero, inputs, w, zero, y, zero, step, n, (zero, np.int64(1)))  # type: ignore[call-arg]

    draw = np.random.default_rng(3)
    inputs, outputs, seen = 700, 3 * BLOCK, hashlib.sha256()
    whole = draw.standard_normal((3, inputs, BLOCK)).astype(np.float32)
    upper = (whole.view(np.uint32) >> 16).astype(np.uint16)
    for w, meant in ((whole, whole), (upper, (upper.astype(np.uint32) << 16).view(np.float32))):
        matrix = meant.transpose(1, 0, 2).reshape(inputs, outputs)
        first = None
        for n in range(1, 27):
            x = draw.standard_normal((n, inputs)).astype(np.float32)
            x[0] = 0.1 * np.arange(inputs)
            y = np.empty((n, outputs), dtype=np.float32)
            multiplied(x.ravel(), inputs, w.ravel(), y.ravel(), outputs, n)
            np.testing.assert_allclose(y, x @ matrix, rtol=1e-3, atol=0.05)
            first = y[0] if first is None else first
            assert np.array_equal(y[0], first), "a vector's product hangs on none beside it"
            seen.update(y.tobytes())
    return seen.hexdigest()


def test_the_same_bits_from_all_registers() -> None:
    """On a processor with AVX-512 and on one without; on one without both are the same."""
    told = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told == ["8", "6", digest()]
    known = Path("/proc/cpuinfo")
    if known.exists() and "avx512f" in known.read_text():
        from core.models.compiled.machine import registers

        assert registers() == (16, 12), "else the same was compared with itself"
