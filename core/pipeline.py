"""Pipelining across requests (Minions 3.4): who is verified in this round, and for whom the
drafters work meanwhile.

With `pipeline=across` the live requests take turns: while the LLM verifies one group, the drafters
draft for the next. A drafted request waits in the pool of intermediate results; drafting pauses
while that pool holds as many as the LLM takes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from core.events import Ahead
from core.metrics import LLM_LANE
from core.sequence import Timed
from core.turn import Live, Turn

__all__ = ["Lane", "Pools", "Up", "due"]


@dataclass(frozen=True, slots=True)
class Up:
    """`drafted` and `fresh` turns are verified now, `fresh` ones after drafting; `meanwhile` are
    drafted beside the LLM's pass."""

    drafted: tuple[Turn, ...]
    fresh: tuple[Turn, ...]
    meanwhile: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        return (*self.drafted, *self.fresh)


class Pools:
    """The pool of intermediate results, by run. The running requests are the live ones that are not
    in it, the pending ones wait in the worker's queue."""

    def __init__(self) -> None:
        self._drafted: dict[str, Turn] = {}

    def take(self, live: Many[Live]) -> Up:
        """Whose turn it is. What is taken leaves the pool."""
        across = [one for one in live if one.sequence.speculation.pipeline == "across"]
        others = [one for one in live if one.sequence.speculation.pipeline != "across"]
        batch = (len(across) + 1) // 2 if len(across) > 1 else len(across)
        drafted = [turn for one in across if (turn := self._drafted.get(run_of(one)))][:batch]
        for turn in drafted:
            del self._drafted[run_of(turn.live)]
        up = {run_of(turn.live) for turn in drafted} | self._drafted.keys()
        running = [one for one in across if run_of(one) not in up]
        # Nothing to verify yet: the first group is drafted as in the plain loop.
        first = [] if drafted else running[:batch]
        room = max(0, batch - len(self._drafted))
        following = running[len(first) :][:room]
        return Up(tuple(drafted), tuple(map(due, [*others, *first])), tuple(map(due, following)))

    def keep(self, up: Up) -> None:
        """What was drafted beside a pass is verified in a later one."""
        passes = [t for turn in up.turns[:1] for t in turn.timed if t.lane == LLM_LANE]
        for turn in up.meanwhile:
            turn.ahead = tuple(_saved(turn, index, passes) for index in turn.drafts)
            self._drafted[run_of(turn.live)] = turn

    def forget(self, live: Live) -> None:
        """The request is gone."""
        self._drafted.pop(run_of(live), None)


class Lane:
    """One thread beside the engine's own, for drafting; it lives from the first job to `close`."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    @contextmanager
    def beside(self, job: Callable[[], None] | None) -> Iterator[None]:
        """Runs `job` while the block runs, and waits for it; raises what it raised."""
        if job is None:
            yield
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drafting")
        future = self._executor.submit(job)
        try:
            yield
        finally:
            future.result()

    def close(self) -> None:
        """Ends the thread; the next job begins another."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def due(live: Live) -> Turn:
    """A request's next round, its length chosen."""
    return Turn(live, live.policy.choose(), live.sequence.root_position)


def _saved(turn: Turn, index: int, passes: list[Timed]) -> Ahead:
    """How much of a draft the LLM's pass hid. Nothing was guessed, so nothing is wasted."""
    hidden = sum(
        max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in turn.drafts[index].timed
        for other in passes
    )
    name = turn.live.drafters[index].name
    return Ahead(name, 0, 1.0, hit=True, saved_ms=hidden * 1000, wasted_ms=0.0)


def run_of(live: Live) -> str:
    return live.sequence.run_id
