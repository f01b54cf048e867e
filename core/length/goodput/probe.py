"""Look: when a draft of one step takes a second in any case.

What is never drafted is never timed: a second step that once was dear would stay so for ever. It is
looked at as a drafter that is switched off is probed, ever more rarely (ALGORITHMS 4).
"""

from __future__ import annotations

from core.length.cost_model import Backoff

__all__ = ["LOOK_LENGTH", "Look"]

LOOK_LENGTH = 2
CHEAPER = 0.85


class Look:
    """`due`: the coming draft is one."""

    def __init__(self) -> None:
        self._wait = Backoff()
        self.due = False

    def plan(self, length: int, longest: int) -> None:
        """Drafts are `length` steps long now, and could be `longest`."""
        if length != 1:
            self._wait = Backoff()
        self.due = length == 1 and longest >= LOOK_LENGTH and self._wait.is_over

    def observe(self, step_ms: float | None, believed_ms: float) -> None:
        """A round with drafts is over; its further steps took `step_ms` each, None without any.

        Where one was cheaper than believed the next look is soon: no single timing is believed.
        """
        if not self.due:
            self._wait.waited += 1
        elif step_ms is not None and step_ms < CHEAPER * believed_ms:
            self._wait = Backoff()
        else:
            self._wait.failed()
        self.due = False
