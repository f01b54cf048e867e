"""NodeLink: what an engine knows of one node: its SSMs, its round trips, the texts it holds.

Numbers and names; sends and receives nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.nodes.messages import AheadReply, RunReply, ServedSsm, WelcomeMessage

__all__ = ["LEAST_DEADLINE_S", "LONGEST_DEADLINE_S", "NodeLink"]

LEAST_DEADLINE_S, LONGEST_DEADLINE_S = 0.05, 1.0
"""A round waits for a node DEADLINE_TRIPS of its median round trips, within these bounds; an engine
gives each round a longest deadline of its own. A node whose median is longer has the least."""
DEADLINE_TRIPS = 3.0
RETRY_S = 1.0
"""A node that was refused is introduced again after so long."""
GIVE_UP_S = 60.0
"""An answer that has not come after so long never will: the node is introduced anew."""
KEPT_TRIPS = 32


@dataclass(eq=False)
class NodeLink:
    """`ssms`: the engine's name of each of its SSMs, by the node's. `held`: tokens of each run's
    text that it has confirmed. `asked`: the number of the round that it is answering, 0: none,
    `asked_at` when it was sent, `waited_s` its deadline. `is_up`: whether it is connected;
    `turned_away`: the last connection was ended before it was one. `hello_at`: when this engine
    last introduced itself; `wire_s`: the last measured time on the wire, there and back.
    `missing_since`: when it was last found late or absent, None while it answers; `away_s`: how
    long it was missing the last time; `told`: ids of open runs that were told it is missing;
    `refusal`: why it may not draft. `counts`: rounds by `NodeTrip.state`."""

    address: str
    least_deadline_s: float = LEAST_DEADLINE_S
    longest_deadline_s: float = LONGEST_DEADLINE_S
    ssms: dict[str, str] = field(default_factory=dict)
    served: tuple[ServedSsm, ...] = ()
    ready: bool = False
    is_up: bool = False
    turned_away: bool = False
    refusal: str = ""
    started: str = ""
    starts: int = 0
    held: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    asked_at: float = 0.0
    waited_s: float = 0.0
    hello_at: float = 0.0
    wire_s: float = 0.0
    missing_since: float | None = None
    away_s: float = 0.0
    told: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_TRIPS))

    @property
    def engine_names(self) -> dict[str, str]:
        """The node's name of each of its SSMs, by the engine's."""
        return {name: served for served, name in self.ssms.items()}

    @property
    def median_s(self) -> float:
        """Of the last round trips; 0 before the first."""
        return statistics.median(self.trips) if self.trips else 0.0

    @property
    def deadline_s(self) -> float:
        """How long a round waits for this node. Where it usually takes longer than the longest
        deadline no waiting helps: its drafts are used only if they are quick by chance."""
        if self.median_s > self.longest_deadline_s:
            return self.least_deadline_s
        wanted = max(self.least_deadline_s, DEADLINE_TRIPS * self.median_s)
        return min(wanted, self.longest_deadline_s)

    @property
    def free(self) -> bool:
        """Whether it can be asked: it is there, and answers nothing else."""
        return self.ready and not self.asked

    def welcome(self, message: WelcomeMessage) -> None:
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

    def ask(self, number: int, now: float) -> None:
        """A round is sent to it."""
        self.asked, self.asked_at, self.waited_s = number, now, self.deadline_s

    def connected(self) -> None:
        """Both ends have shaken hands."""
        self.is_up, self.turned_away = True, False

    def disconnected(self) -> None:
        """The connection has ended, maybe before it was one."""
        self.turned_away, self.is_up = not self.is_up, False
        self.lose()

    def lose(self, reason: str = "") -> None:
        """The connection is gone, and the answer with it; `reason`: why it is refused."""
        self.ready, self.asked = False, 0
        self.refusal = reason or self.refusal

    def give_up(self, now: float) -> None:
        """Waits no longer for an answer that never came."""
        if self.asked and now - self.asked_at > GIVE_UP_S:
            self.lose(f"it did not answer for {GIVE_UP_S:g} s")

    def needs_hello(self, now: float) -> bool:
        """Whether it is to be introduced again, after a refusal."""
        return not self.ready and bool(self.refusal) and now - self.hello_at >= RETRY_S

    def take_answer(
        self, number: int, now: float, busy_s: float, *, awaited: bool, late: bool = False
    ) -> bool:
        """Takes an answer's arrival; whether it is to the round that was asked last. `busy_s`: what
        the node worked on it. Its round trip is measured where it was `awaited`. One that is `late`
        came between two rounds, and the median forgives what passed until it was read. Any other
        was read after SSMs here had drafted: its trip is the work and the last time on the wire."""
        if not number or number != self.asked:
            return False
        trip = now - self.asked_at
        if awaited:
            self.wire_s = max(0.0, trip - busy_s)
        elif not late:
            trip = min(trip, busy_s + self.wire_s)
        self.trips.append(trip)
        self.asked = 0
        return True

    def take_text(self, reply: RunReply | AheadReply, *, is_open: bool) -> None:
        """How much of a run's text the node holds by its reply. `is_open`: the run has not ended;
        a late answer may name one that has."""
        if reply.need >= 0:
            self.held.pop(reply.run, None)
        elif is_open:
            self.held[reply.run] = reply.length

    def begin_absence(self, now: float) -> None:
        """A round goes without its answer."""
        if self.missing_since is None:
            self.missing_since = now

    def end_absence(self, now: float) -> None:
        """It answered in time."""
        if self.missing_since is not None:
            self.away_s, self.missing_since = now - self.missing_since, None

    def missing_reason(self, *, late: bool, why: str = "") -> str:
        """Why a round goes without its answer; `why`: it refused the round."""
        if late:
            return f"did not answer within {self.waited_s * 1000:.0f} ms"
        busy = "has not answered an earlier round yet"
        return why or self.refusal or (busy if self.ready and self.asked else "is not there")

    def tell(self, run_id: str, missing: str) -> list[str]:
        """What a run is told, in a round that asked for its drafts: once that the node is missing,
        and once that it is there again. `missing`: why, empty if it answered."""
        if missing and run_id not in self.told:
            self.told.add(run_id)
            rest = "rounds go on without its drafts until it answers"
            return [f"node {self.address} {missing}: {rest}"]
        if not missing and run_id in self.told:
            self.told.discard(run_id)
            return [f"node {self.address} drafts again, after {self.away_s:.1f} s"]
        return []


def _names(ssms: Iterable[ServedSsm]) -> str:
    return ", ".join(one.name for one in ssms)
