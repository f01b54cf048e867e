"""Idle time: the part of a lone request's round between its stages.

It is spent on calling drafters, emitting events and bookkeeping. A round that drafts has more of it
than a plain one, so a length policy has to count it. Measured only for a request that runs alone:
with several requests it cannot be attributed to one of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from core.engine.round_state import ActiveRequest, RoundState
from core.metrics import union_ms

__all__ = ["IdleTime"]


class IdleTime:
    """Fills in `between_ms`. The time after a round's commit is known only when the round is over,
    so it counts in the next round of the same run; time between two rounds counts in none."""

    def __init__(self) -> None:
        self._state: RoundState | None = None
        self._began = 0.0
        self._run_id = ""
        self._behind = 0.0

    def begin(
        self, requests: Sequence[ActiveRequest], states: Sequence[RoundState], began: float
    ) -> None:
        """A round of `states` began at `began` (seconds, as all times here); it is measured if one
        request alone is active and takes part."""
        # With several requests, time between stages cannot be attributed to one of them.
        self._state = states[0] if len(requests) == 1 == len(states) else None
        self._began = began

    def fill(self) -> None:
        """Fills in `between_ms`, when all stages but the commit are over."""
        state = self._state
        if state is None:
            return
        request = state.request
        stages = [one for one in (*request.timings, *state.timings) if one.start >= self._began]
        gap = time.perf_counter() - self._began
        # The union: stages on the drafting thread overlap the LLM's pass.
        gap -= union_ms((one.start, one.end) for one in stages)
        # From the previous round's commit to its last event, if that round was this run's.
        behind = self._behind if request.run_id == self._run_id else 0.0
        state.between_ms = (max(0.0, gap) + behind) * 1000

    def end(self) -> None:
        """Call when the round is over and its events are emitted."""
        state = self._state
        # The next round of another run must not inherit it.
        self._run_id = "" if state is None else state.request.run_id
        if state is not None:
            self._behind = max(0.0, time.perf_counter() - max(one.end for one in state.timings))
