"""What the processor has that passes are compiled for."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from numba.core.registry import cpu_target

from core.models.native.kernel_args import HALF_BLOCK

__all__ = ["LINE", "known", "multiplies_pairs", "multiplies_tiles", "registers", "weaves"]

LINE = 64
"""Bytes that memory brings at once."""
# Of Linux on x86-64: the call, what is asked of it, and for which part of a thread's registers.
SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18


@cache
def known() -> frozenset[str]:
    """What numba compiles for: less than the processor has, where it is told so (NUMBA_CPU_NAME,
    NUMBA_CPU_FEATURES, NUMBA_ENABLE_AVX). LLVM ends the process over a word that it cannot say."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(one[1:] for one in features.split(",") if one.startswith("+"))


@cache
def registers() -> tuple[int, int]:
    """Numbers of a vector; and the most tokens that are multiplied together, but in tiles.

    Before AVX-512 there were 16 registers of 8 numbers, which six tokens' sums of half a block
    fill; with it there are 32 of 16. There 6 to 24 tokens of the bundled LLM took 0.9 of the time
    that they took with the others (medians of three interleaved runs on a Zen 4; more than 12 at
    once was not tried).
    """
    return (16, 12) if "avx512f" in known() else (8, 6)


@cache
def multiplies_pairs() -> bool:
    """Whether what is compiled adds two products of bfloat16 to a float32 at once (AVX512_BF16)."""
    return {"avx512f", "avx512bf16"} <= known()


@cache
def multiplies_tiles() -> bool:
    """Whether what is compiled multiplies tiles of bfloat16 (AMX), and the system lets this process
    have them, for which it keeps more of each thread: it does not where one has too little room for
    that when it gets a signal. Sums round otherwise then; nothing else is different."""
    if not {"amx-tile", "amx-bf16", "avx512f"} <= known() or sys.platform != "linux":
        return False
    asked: int = ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA)
    return asked == 0


@cache
def weaves() -> bool:
    """Whether weights of 16 bits are woven (see `kinds`): where half a block is two vectors."""
    return 2 * registers()[0] == HALF_BLOCK
