"""How many cores a CPU pass uses, and how long a thread keeps Python to itself.

Threads of a pass wait for each other by spinning. On two cores with two busy neighbours a pass of
the bundled LLM took 3.3 ms on one thread and hundreds of milliseconds on two; with both cores free
two threads gave 2.6 ms. So one core is left to everybody else, unless a number is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import torch

from core.config.checks import integer

__all__ = ["TorchAlone", "take_turns", "use_threads"]

TURN_S = 0.001


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


def take_turns() -> None:
    """Shortens what a thread may keep Python's lock for while another waits, 5 ms by default.

    A pass gives the lock up, and a page that is being drawn takes it: the next stage of the round
    waits. Watched by a page, plain decoding had 0.83 of its speed headless with 1 ms, 0.73 with 5,
    0.80 with 0.5 (medians of 10 runs each, interleaved, two cores; an hour later 0.77 with 1 ms).
    """
    sys.setswitchinterval(min(TURN_S, sys.getswitchinterval()))


class TorchAlone:
    """Keeps torch to one thread while passes have threads of their own.

    Between its operations a thread of torch's spins on a core that a pass then waits for: on two
    cores and two threads plain decoding of the bundled LLM at T = 0.8 made 170 tokens a second, 614
    with this. Taken and given back by one thread, the engine's.
    """

    def __init__(self, models: Iterable[object]) -> None:
        self._worth = all(getattr(model, "own_threads", False) for model in models)
        self._before: int | None = None

    def take(self) -> None:
        """Idempotent; nothing where torch has one already, be it another's doing."""
        if self._worth and self._before is None and torch.get_num_threads() > 1:
            self._before = torch.get_num_threads()
            torch.set_num_threads(1)

    def give_back(self) -> None:
        """As many as there were before. Idempotent."""
        if self._before is not None:
            torch.set_num_threads(self._before)
            self._before = None
