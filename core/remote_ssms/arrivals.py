"""NodeArrivals: handles messages from nodes and changes of their connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.remote_ssms.ahead import AheadExchange
from core.remote_ssms.answers import are_probabilities
from core.remote_ssms.messages import (
    AheadDraftsMessage,
    DraftsMessage,
    HelloMessage,
    MessageError,
    RefusedMessage,
    WelcomeMessage,
    encode,
    from_node,
)
from core.remote_ssms.node_link import NodeLink
from core.remote_ssms.pending_round import PendingRound
from core.remote_ssms.remote_ssm import RemoteSsm
from core.remote_ssms.transport import Arrival, Transport

__all__ = ["NodeArrivals"]


class NodeArrivals:
    """`drafters`: by the engine's names. `round`: the current round, None between rounds.
    `open_runs`: ids of runs that have begun a round and have not ended."""

    def __init__(
        self,
        transport: Transport,
        hello: HelloMessage,
        links: Sequence[NodeLink],
        drafters: Mapping[str, RemoteSsm],
    ) -> None:
        self._transport = transport
        self._hello = hello
        self._links = links
        self._drafters = drafters
        self.ahead = AheadExchange(hello.vocab_size)
        self.round: PendingRound | None = None
        self.open_runs: set[str] = set()

    def poll(self, until: float | None = None, *, awaited: bool = False) -> None:
        """Handles all arrivals; waits for an arrival until `until`, on the transport's clock. None:
        does not wait. `awaited`: answers are read as they come, so that their round-trip times are
        exact."""
        until = self._transport.now() if until is None else until
        for arrival in self._transport.poll(until):
            self._handle(arrival, awaited)

    def send_hello(self, node: int) -> None:
        """Sends a node the hello."""
        self._links[node].hello_at = self._transport.now()
        self._transport.send(node, encode(self._hello))

    def _handle(self, arrival: Arrival, awaited: bool) -> None:
        node, link = arrival.node, self._links[arrival.node]
        # A hello after each connection: another process may listen at the address now.
        if arrival.change == "up":
            link.on_connect()
            self.send_hello(node)
        elif arrival.change == "down":
            link.on_disconnect()
            self.ahead.forget(node)
        elif arrival.change == "refused":
            link.mark_lost("it has another key: --node-key-file is to be the file it started with")
        elif arrival.frame is not None:
            self._handle_frame(node, link, arrival.frame, awaited)

    def _handle_frame(self, node: int, link: NodeLink, frame: bytes, awaited: bool) -> None:
        try:
            message = from_node(frame)
        except MessageError as error:
            # A faulty node does not end the runs.
            link.mark_lost(str(error))
            return
        if isinstance(message, WelcomeMessage):
            self._handle_welcome(link, message)
        elif isinstance(message, RefusedMessage):
            self._handle_refusal(node, link, message)
        elif isinstance(message, AheadDraftsMessage):
            self._handle_ahead(node, link, message)
        else:
            self._handle_drafts(node, link, message, awaited)

    def _handle_welcome(self, link: NodeLink, message: WelcomeMessage) -> None:
        # Nodes are compared by the identity of their processes: two addresses may lead to one node.
        for other in self._links:
            if other is not link and other.process_id == message.process_id:
                link.mark_lost(f"the same node as {other.address}, name each node once")
                return
        # A node answers a hello at once: the round trip is the time in transit.
        link.wire_s = self._transport.now() - link.hello_at
        link.on_welcome(message)

    def _handle_refusal(self, node: int, link: NodeLink, message: RefusedMessage) -> None:
        if not message.number:
            link.mark_lost(message.reason)
            return
        # The node refuses this round, or lacks a hello, as after a restart: a new hello is sent.
        if link.pending_number == message.number:
            link.mark_lost()
            self.send_hello(node)
        if self.round is not None and message.number == self.round.number:
            self.round.parts[node].refusal = f"refused the round ({message.reason})"

    def _handle_drafts(
        self, node: int, link: NodeLink, message: DraftsMessage, awaited: bool
    ) -> None:
        pending, now = self.round, self._transport.now()
        # A late answer still tells how much text the node has.
        late = pending is None or message.number != pending.number
        busy_s = message.busy_ms / 1000
        awaited = awaited and not late
        if not link.accept_answer(message.number, now, busy_s, awaited=awaited, late=late):
            return
        for reply in message.runs:
            link.update_held(reply, is_open=reply.run in self.open_runs)
        if pending is not None and not late:
            part = pending.parts[node]
            assert part.clock is not None, "the round was sent"
            # An answer that may have waited counts with the trip that `accept_answer` bounded.
            part.clock.stop(busy_s, None if awaited else link.trips[-1])
            part.message = message

    def _handle_ahead(self, node: int, link: NodeLink, message: AheadDraftsMessage) -> None:
        in_round, now = self.round is not None, self._transport.now()
        replies = self.ahead.accept(node, message, now, link.wire_s, link.ssms, in_round=in_round)
        for reply in replies:
            link.update_held(reply, is_open=reply.run in self.open_runs)
            # Reports on drafts made ahead that a round has used.
            for one in reply.verified:
                if one.ssm in link.ssms and not one.error and are_probabilities(one.likelihoods):
                    drafter = self._drafters[link.ssms[one.ssm]]
                    drafter.observe(reply.run, one.temperature, one.likelihoods)
