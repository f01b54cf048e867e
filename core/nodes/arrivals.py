"""NodeArrivals: takes what comes from the nodes, at any time, and updates what is known of them.

An answer to the round under way goes into its PendingRound; introductions, refusals and answers
that come too late change the links alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.nodes.ahead import AheadExchange
from core.nodes.answers import are_probabilities
from core.nodes.messages import (
    AheadDraftsMessage,
    DraftsMessage,
    HelloMessage,
    MessageError,
    RefusedMessage,
    WelcomeMessage,
    encode,
    from_node,
)
from core.nodes.node_link import NodeLink
from core.nodes.pending_round import PendingRound
from core.nodes.remote_ssm import RemoteSsm
from core.nodes.transport import Arrival, Transport

__all__ = ["NodeArrivals"]


class NodeArrivals:
    """`links` and `drafters` (by the engine's names) are those of the pool. `round`: the one under
    way. `open_runs`: ids of runs that were asked for and have not ended."""

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
        """Takes what is there, or waits for something until a time of the transport's clock.
        `awaited`: it is taken when it comes, so that round trips are measured."""
        until = self._transport.now() if until is None else until
        for arrival in self._transport.poll(until):
            self._take(arrival, awaited)

    def introduce(self, node: int) -> None:
        """Says to a node which LLM it would draft for; its welcome comes some time later."""
        self._links[node].hello_at = self._transport.now()
        self._transport.send(node, encode(self._hello))

    def _take(self, arrival: Arrival, awaited: bool) -> None:
        node, link = arrival.node, self._links[arrival.node]
        if arrival.change == "up":
            link.connected()
            self.introduce(node)
        elif arrival.change == "down":
            link.disconnected()
            self.ahead.forget(node)
        elif arrival.change == "refused":
            link.lose("it has another key: --node-key-file is to be the file it started with")
        elif arrival.frame is not None:
            self._take_frame(node, link, arrival.frame, awaited)

    def _take_frame(self, node: int, link: NodeLink, frame: bytes, awaited: bool) -> None:
        try:
            message = from_node(frame)
        except MessageError as error:
            link.lose(str(error))
            return
        if isinstance(message, WelcomeMessage):
            self._take_welcome(link, message)
        elif isinstance(message, RefusedMessage):
            self._take_refusal(node, link, message)
        elif isinstance(message, AheadDraftsMessage):
            self._take_ahead(node, link, message)
        else:
            self._take_drafts(node, link, message, awaited)

    def _take_welcome(self, link: NodeLink, message: WelcomeMessage) -> None:
        for other in self._links:
            if other is not link and other.started == message.started:
                link.lose(f"the same node as {other.address}, name each node once")
                return
        link.wire_s = self._transport.now() - link.hello_at
        link.welcome(message)

    def _take_refusal(self, node: int, link: NodeLink, message: RefusedMessage) -> None:
        if not message.number:
            link.lose(message.reason)
            return
        # It has forgotten this engine, or refuses this round: it is introduced anew.
        if link.asked == message.number:
            link.lose()
            self.introduce(node)
        if self.round is not None and message.number == self.round.number:
            self.round.refusals[node] = f"refused the round ({message.reason})"

    def _take_drafts(
        self, node: int, link: NodeLink, message: DraftsMessage, awaited: bool
    ) -> None:
        pending, now = self.round, self._transport.now()
        late = pending is None or message.number != pending.number
        busy_s, awaited = message.busy_ms / 1000, awaited and not late
        if not link.take_answer(message.number, now, busy_s, awaited=awaited, late=late):
            return
        for reply in message.runs:
            link.take_text(reply, is_open=reply.run in self.open_runs)
        if pending is not None and not late:
            pending.clocks[node].stop(busy_s, None if awaited else link.trips[-1])
            pending.messages[node] = message

    def _take_ahead(self, node: int, link: NodeLink, message: AheadDraftsMessage) -> None:
        in_round, now = self.round is not None, self._transport.now()
        replies = self.ahead.take(node, message, now, link.wire_s, link.ssms, in_round=in_round)
        for reply in replies:
            link.take_text(reply, is_open=reply.run in self.open_runs)
            for one in reply.verified:
                if one.ssm in link.ssms and not one.error and are_probabilities(one.likelihoods):
                    drafter = self._drafters[link.ssms[one.ssm]]
                    drafter.observe(reply.run, one.temperature, one.likelihoods)
