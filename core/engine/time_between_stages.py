"""The time between the stages of a lone request's round: calling drafters, emitting events and
bookkeeping. A length policy has to count this time, since drafting lengthens it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from core.engine.round_state import ActiveRequest, RoundState
from core.metrics import union_ms

__all__ = ["TimeBetweenStages"]


class TimeBetweenStages:
    """Fills in `RoundState.between_ms`. The time after a round's commit counts in the same run's
    next round."""

    def __init__(self) -> None:
        self._state: RoundState | None = None
        self._start = 0.0
        self._run_id = ""
        # Seconds from the last measured round's commit to its last event.
        self._after_commit = 0.0

    def begin(
        self, requests: Sequence[ActiveRequest], states: Sequence[RoundState], start: float
    ) -> None:
        """Call when a round of `states` has begun at `start`, in seconds of time.perf_counter. A
        round is measured if a single request is active and takes part."""
        self._state = states[0] if len(requests) == 1 == len(states) else None
        self._start = start

    def fill(self) -> None:
        """Fills in `between_ms`. Call it when the stages before the commit are over."""
        state = self._state
        if state is None:
            return
        request = state.request
        stages = [one for one in (*request.timings, *state.timings) if one.start >= self._start]
        between = time.perf_counter() - self._start
        # The union: stages may overlap.
        between -= union_ms((one.start, one.end) for one in stages)
        after_commit = self._after_commit if request.run_id == self._run_id else 0.0
        state.between_ms = (max(0.0, between) + after_commit) * 1000

    def end(self) -> None:
        """Call when the round is over and its events are emitted."""
        state = self._state
        # Another run's round must not inherit `_after_commit`.
        self._run_id = "" if state is None else state.request.run_id
        if state is not None:
            last_end = max(one.end for one in state.timings)
            self._after_commit = max(0.0, time.perf_counter() - last_end)
