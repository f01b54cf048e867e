"""NodeLink: what an engine knows of one node: its SSMs, its round trips, the texts it holds.

Numbers and names; sends and receives nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.nodes.messages import ServedSsm, Welcome

__all__ = ["LEAST_DEADLINE_S", "NodeLink"]

LEAST_DEADLINE_S = 0.05
"""A round waits for a node at least so long, and then DEADLINE_TRIPS of its median round trips."""
DEADLINE_TRIPS = 3.0
KEPT_TRIPS = 32


@dataclass(eq=False)
class NodeLink:
    """`ssms`: the engine's name of each of its SSMs, by the node's. `held`: tokens of each run's
    text that it has confirmed. `asked`: the number of the round that it is answering, 0: none, and
    `asked_at` when it was sent. `missing_since`: when it was last found late or absent, None while
    it answers; `refusal`: why it may not draft. `counts`: rounds by `NodeTrip.state`."""

    address: str
    least_deadline_s: float = LEAST_DEADLINE_S
    ssms: dict[str, str] = field(default_factory=dict)
    served: tuple[ServedSsm, ...] = ()
    ready: bool = False
    refusal: str = ""
    started: str = ""
    starts: int = 0
    held: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    asked_at: float = 0.0
    missing_since: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_TRIPS))

    @property
    def median_s(self) -> float:
        """Of the last round trips; 0 before the first."""
        return statistics.median(self.trips) if self.trips else 0.0

    @property
    def deadline_s(self) -> float:
        """How long a round waits for this node."""
        return max(self.least_deadline_s, DEADLINE_TRIPS * self.median_s)

    @property
    def free(self) -> bool:
        """Whether it can be asked: it is there, and answers nothing else."""
        return self.ready and not self.asked

    def welcome(self, message: Welcome) -> None:
        """Takes an introduction. A node that comes back with other SSMs is refused."""
        known = {one.name: one for one in self.served}
        if known and known != {one.name: one for one in message.ssms}:
            self.refusal = f"it came back with other SSMs: {_names(message.ssms)}"
            return
        self.served = tuple(message.ssms)
        if message.started != self.started:
            self.started = message.started
            self.starts += 1
            # Another process: it holds no text.
            self.held.clear()
        self.ready, self.refusal = True, ""

    def lose(self) -> None:
        """The connection is gone, and the answer with it."""
        self.ready, self.asked = False, 0

    def answered(self, number: int, now: float) -> bool:
        """Takes an answer's arrival; whether it is the one that is awaited."""
        if number != self.asked:
            return False
        self.trips.append(now - self.asked_at)
        self.asked = 0
        return True


def _names(ssms: Iterable[ServedSsm]) -> str:
    return ", ".join(one.name for one in ssms)
