"""NodeLink: an engine's record of one node (connection, SSMs, round trips, confirmed texts).

Sends and receives nothing.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

from core.remote_ssms.messages import AheadReply, RunReply, ServedSsm, WelcomeMessage

__all__ = ["LEAST_DEADLINE_S", "LONGEST_DEADLINE_S", "NodeLink"]

LEAST_DEADLINE_S, LONGEST_DEADLINE_S = 0.05, 1.0
"""Default bounds of `NodeLink.deadline_s`."""
DEADLINE_TRIPS = 3.0
RETRY_S = 1.0
"""Least seconds between two hellos to a refused node."""
GIVE_UP_S = 60.0
"""Seconds without an answer to a round after which the node is marked lost."""
MEDIAN_TRIPS = 32
"""The number of last round trips in the median."""


@dataclass(eq=False)
class NodeLink:
    """Times are in seconds; times named `_at` or `_since` are on the transport's clock.

    `ssms`: the engine's names of the node's SSMs, by the node's names. `ready`: rounds may be sent;
    `refusal`: why the node may not draft; `handshake_failed`: the last connection ended within its
    handshake. `hello_at`: when the last hello was sent. `process_id`: the identity of the node's
    process; `starts`: the number of processes that the node has had.

    `held_tokens`: by run id, the number of text tokens that the node has confirmed.
    `pending_number`: the number of the unanswered round, 0 for none; `sent_at`: when that round was
    sent; `round_deadline_s`: the longest wait for its answer. `trips`: the last round trips;
    `wire_s`: the last measured time in transit, both ways. `missing_since`: when the node stopped
    answering in time, else None; `away_s`: the length of the last absence; `notified_runs`: ids of
    open runs with a note that the node is missing.
    """

    address: str
    least_deadline_s: float = LEAST_DEADLINE_S
    longest_deadline_s: float = LONGEST_DEADLINE_S
    ssms: dict[str, str] = field(default_factory=dict)
    served_ssms: tuple[ServedSsm, ...] = ()
    ready: bool = False
    is_connected: bool = False
    handshake_failed: bool = False
    refusal: str = ""
    process_id: str = ""
    starts: int = 0
    held_tokens: dict[str, int] = field(default_factory=dict)
    pending_number: int = 0
    sent_at: float = 0.0
    round_deadline_s: float = 0.0
    hello_at: float = 0.0
    wire_s: float = 0.0
    missing_since: float | None = None
    away_s: float = 0.0
    notified_runs: set[str] = field(default_factory=set)
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=MEDIAN_TRIPS))

    @property
    def engine_names(self) -> dict[str, str]:
        """The node's names of its SSMs, by the engine's names."""
        return {name: served for served, name in self.ssms.items()}

    @property
    def median_s(self) -> float:
        """The median of the last round trips; 0 before the first."""
        return statistics.median(self.trips) if self.trips else 0.0

    @property
    def deadline_s(self) -> float:
        """How long a round waits for this node."""
        # The node usually takes longer than the longest deadline: waiting would rarely help.
        if self.median_s > self.longest_deadline_s:
            return self.least_deadline_s
        # The median, not the mean: one slow answer does not lengthen every later wait.
        deadline_s = max(self.least_deadline_s, DEADLINE_TRIPS * self.median_s)
        return min(deadline_s, self.longest_deadline_s)

    @property
    def round_ends_at(self) -> float:
        """The deadline of the pending round, on the transport's clock."""
        return self.sent_at + self.round_deadline_s

    @property
    def free(self) -> bool:
        """Whether the node is ready and has no pending round."""
        return self.ready and not self.pending_number

    def on_welcome(self, message: WelcomeMessage) -> None:
        """Handles the node's answer to the hello. A node that comes back with other SSMs is
        refused."""
        # Drafters are named once, when the engine connects: none can be added or taken away later.
        before = {one.name: one for one in self.served_ssms}
        if before and before != {one.name: one for one in message.ssms}:
            self.refusal = (
                f"it came back with other SSMs: {', '.join(one.name for one in message.ssms)}"
            )
            return
        self.served_ssms = tuple(message.ssms)
        if message.process_id != self.process_id:
            self.process_id = message.process_id
            self.starts += 1
            # Another process has no texts.
            self.held_tokens.clear()
        self.ready, self.refusal = True, ""

    def begin_round(self, number: int, now: float) -> None:
        """Records the round that is sent next."""
        self.pending_number, self.sent_at, self.round_deadline_s = number, now, self.deadline_s

    def on_connect(self) -> None:
        """Records that the handshake has succeeded."""
        self.is_connected, self.handshake_failed = True, False

    def on_disconnect(self) -> None:
        """Records that the connection has ended, perhaps within its handshake."""
        self.handshake_failed, self.is_connected = not self.is_connected, False
        self.mark_lost()

    def mark_lost(self, reason: str = "") -> None:
        """Excludes the node from rounds until its next welcome. `reason`: a new reason why the node
        is refused; empty keeps an earlier reason."""
        # Else a `pending_number` that is never answered would keep `free` False for ever.
        self.ready, self.pending_number = False, 0
        self.refusal = reason or self.refusal

    def give_up(self, now: float) -> None:
        """Marks the node lost if it has not answered the pending round for GIVE_UP_S."""
        if self.pending_number and now - self.sent_at > GIVE_UP_S:
            self.mark_lost(f"it did not answer for {GIVE_UP_S:g} s")

    def needs_hello(self, now: float) -> bool:
        """Whether another hello is due after a refusal."""
        return not self.ready and bool(self.refusal) and now - self.hello_at >= RETRY_S

    def accept_answer(
        self, number: int, now: float, busy_s: float, *, awaited: bool, late: bool = False
    ) -> bool:
        """Records the round trip of an answer; returns False for an answer to another round.

        `busy_s`: the time that the node spent on the answer. `awaited`: the answer was read when it
        came. `late`: the answer was read after its round; the median tolerates its long trip. The
        trip of another answer counts as at most `busy_s` plus the last time in transit.
        """
        # An answer to a round that was given up, or from an earlier process of the node.
        if not number or number != self.pending_number:
            return False
        trip = now - self.sent_at
        # trip = time on the node + time in transit, both ways.
        if awaited:
            self.wire_s = max(0.0, trip - busy_s)
        elif not late:
            # The answer may have waited while local SSMs drafted.
            trip = min(trip, busy_s + self.wire_s)
        self.trips.append(trip)
        self.pending_number = 0
        return True

    def update_held(self, reply: RunReply | AheadReply, *, is_open: bool) -> None:
        """Records how much of a run's text the node has. `is_open`: the run has not ended."""
        if reply.need >= 0:
            # So the next request has the whole text.
            self.held_tokens.pop(reply.run, None)
        # Not for an ended run, whose id `RemotePool.free` has already removed.
        elif is_open:
            self.held_tokens[reply.run] = reply.length

    def begin_absence(self, now: float) -> None:
        """Records that a round went on without the node's answer."""
        if self.missing_since is None:
            self.missing_since = now

    def end_absence(self, now: float) -> None:
        """Records that the node answered in time."""
        if self.missing_since is not None:
            self.away_s, self.missing_since = now - self.missing_since, None

    def missing_reason(self, *, late: bool, why: str = "") -> str:
        """Why a round went on without the node's answer. `why`: the node's reason for a
        refusal."""
        if late:
            return f"did not answer within {self.round_deadline_s * 1000:.0f} ms"
        if why or self.refusal:
            return why or self.refusal
        if self.ready and self.pending_number:
            return "has not answered an earlier round yet"
        if self.is_connected:
            return "is connected, but has not answered the engine's hello yet"
        return "is not there"

    def notes_for(self, run_id: str, missing: str) -> list[str]:
        """The notes for a run with requests to this node: one when the node goes missing, and one
        when the node is back. `missing`: why the node did not answer, or empty."""
        # One note for each absence, not in every round.
        if missing and run_id not in self.notified_runs:
            self.notified_runs.add(run_id)
            rest = "rounds go on without its drafts until it answers"
            return [f"node {self.address} {missing}: {rest}"]
        if not missing and run_id in self.notified_runs:
            self.notified_runs.discard(run_id)
            return [f"node {self.address} drafts again, after {self.away_s:.1f} s"]
        return []
