"""Collectives of ranks on one machine, in shared memory.

In a collective of gloo the processes wake each other through the kernel, which takes 0.4 ms. Here
the ranks poll each other's counters. Needs a processor whose stores become visible in program order
(x86-64).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

__all__ = ["CAPACITY", "SharedMemory", "is_ordered"]

CAPACITY = 1 << 22
"""Bytes of the largest tensor that is exchanged in shared memory."""
PADDING = 64  # a counter has a cache line of its own
SPIN_S, PAUSE_S = 0.0005, 0.00005
"""A rank polls for SPIN_S seconds without a pause, then sleeps PAUSE_S seconds between polls."""
ALIVE_S = 0.05
"""Seconds between two checks that the awaited rank is alive."""


def is_ordered() -> bool:
    """Whether other processors see stores in program order."""
    return platform.machine() in ("x86_64", "AMD64")


class SharedMemory:
    """Rank `rank` of `count`; all ranks are given the same `folder`.

    In step n a rank writes its tensor into slot n % 2 of its two slots, then n into its counter.
    Before it writes, the rank waits until all ranks have reached step n - 1. Then no rank still
    reads the slot, which was written in step n - 2.
    """

    def __init__(self, folder: Path, rank: int, count: int, timeout_s: float) -> None:
        self._rank, self._count, self._timeout_s = rank, count, timeout_s
        size = count * (PADDING + 2 * CAPACITY)
        file = os.open(folder / "exchange", os.O_RDWR | os.O_CREAT, 0o600)
        # Not sparse: on a full disk, writing to a sparse file would end the process (SIGBUS).
        os.posix_fallocate(file, 0, size)
        self._memory = mmap.mmap(file, size)
        os.close(file)
        # int64; the counter of rank r is at byte r * PADDING.
        self._counters = memoryview(self._memory).cast("q")
        self._step = 0
        self._slots: dict[tuple[int, torch.dtype, torch.Size], list[torch.Tensor]] = {}
        # The system releases a lock when its process ends, even if the process is killed.
        self._locks = [
            os.open(folder / f"rank-{one}", os.O_RDWR | os.O_CREAT, 0o600) for one in range(count)
        ]
        fcntl.flock(self._locks[rank], fcntl.LOCK_EX)

    def fits(self, part: torch.Tensor) -> bool:
        """Whether the tensor can be exchanged here."""
        return part.is_contiguous() and 0 < part.nbytes <= CAPACITY

    def all_reduce(self, part: torch.Tensor) -> None:
        """Adds up a tensor over all ranks, in place. Raises RuntimeError if a rank has ended or
        times out."""
        slots = self._write(part)
        self._await(self._step)
        # In one order on all ranks: their residual streams must be bit-identical.
        torch.add(slots[0], slots[1], out=part)
        for slot in slots[2:]:
            part.add_(slot)

    def gather(self, part: torch.Tensor) -> list[torch.Tensor] | None:
        """See `RankGroup.gather`."""
        slots = self._write(part)
        if self._rank:
            return None
        self._await(self._step)
        # Copies, since the slots are written again two steps later.
        return [slot.clone() for slot in slots]

    def close(self) -> None:
        """Releases this rank's lock."""
        for lock in self._locks:
            os.close(lock)
        self._locks = []

    def _write(self, part: torch.Tensor) -> Sequence[torch.Tensor]:
        """Begins a step with this rank's tensor. Returns the slots of all ranks, which may not have
        written them yet."""
        self._await(self._step)
        self._step += 1
        slots = self._slots_of(part)
        slots[self._rank].copy_(part)
        # Last: a rank that sees the counter also sees the tensor.
        self._counters[self._rank * (PADDING // 8)] = self._step
        return slots

    def _slots_of(self, part: torch.Tensor) -> list[torch.Tensor]:
        key = self._step % 2, part.dtype, part.shape
        if key not in self._slots:
            # After the counters come the slots of even steps by rank, then the slots of odd steps.
            first = self._count * (PADDING + key[0] * CAPACITY)
            # Later passes reuse these tensors: inference tensors could not be written outside
            # inference mode.
            with torch.inference_mode(mode=False):
                self._slots[key] = [
                    torch.frombuffer(
                        self._memory,
                        dtype=part.dtype,
                        count=part.numel(),
                        offset=first + rank * CAPACITY,
                    ).view(part.shape)
                    for rank in range(self._count)
                ]
        return self._slots[key]

    def _await(self, step: int) -> None:
        for rank in range(self._count):
            if self._counters[rank * (PADDING // 8)] < step:
                self._await_rank(rank, step)

    def _await_rank(self, rank: int, step: int) -> None:
        start = last_check = time.perf_counter()
        while self._counters[rank * (PADDING // 8)] < step:
            now = time.perf_counter()
            if now - start > SPIN_S:
                time.sleep(PAUSE_S)
            if now - last_check > ALIVE_S:
                last_check = now
                if self._has_ended(rank):
                    raise RuntimeError(f"rank {rank} has ended")
                if now - start > self._timeout_s:
                    raise RuntimeError(f"rank {rank} has not come within {self._timeout_s:g} s")

    def _has_ended(self, rank: int) -> bool:
        try:
            fcntl.flock(self._locks[rank], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._locks[rank], fcntl.LOCK_UN)
        return True
