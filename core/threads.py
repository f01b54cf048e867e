"""How many cores a CPU pass uses.

Threads of a pass wait for each other by spinning. On two cores with two busy neighbours a pass of
the bundled LLM took 3.3 ms on one thread and hundreds of milliseconds on two; with both cores free
two threads gave 2.6 ms. So one core is left to everybody else, unless a number is asked for.
"""

from __future__ import annotations

import os

import torch

from core.checks import integer

__all__ = ["use_threads"]


def use_threads(count: int | None = None) -> int:
    """Sets torch's threads for this process: `count`, or all cores but one; returns the number.

    Raises ConfigError where it is out of range.
    """
    cores = os.cpu_count() or 1
    if count is not None:
        integer("threads", count, 1, cores)
    threads = count or max(1, cores - 1)
    torch.set_num_threads(threads)
    return threads
