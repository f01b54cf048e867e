"""RemotePool: the SSMs of all nodes.

A round continues without a node that is late or absent. Drafts of nodes are proposals: no text
depends on them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.drafters.ahead import AheadDraftsByName
from core.errors import NodeError
from core.events import ModelInfo
from core.events.parts import ON_NODE
from core.models.loading.progress import Say
from core.remote_ssms.ahead import AheadRun, ReadyDrafts
from core.remote_ssms.answers import DraftClock
from core.remote_ssms.arrivals import NodeArrivals
from core.remote_ssms.messages import (
    MOST_TOKENS,
    VERSION,
    AheadMessage,
    FreeMessage,
    HelloMessage,
    RoundMessage,
    encode,
)
from core.remote_ssms.node_link import LEAST_DEADLINE_S, LONGEST_DEADLINE_S, NodeLink
from core.remote_ssms.pending_round import NodeAnswers, NodeRound, PendingRound
from core.remote_ssms.remote_ssm import RemoteSsm
from core.remote_ssms.run_requests import (
    RemoteRun,
    ahead_request,
    is_too_long,
    requests_of,
    run_request,
)
from core.remote_ssms.transport import Transport
from core.sequence import TokenSequence

__all__ = ["RemotePool"]

CONNECT_S = 60.0
"""Seconds that an engine waits for its nodes at the start: the engine may be started first."""
PROGRESS_S = 1.0
"""The longest time between progress messages while the engine waits."""
NOT_THERE = (
    "no node answered there within {:g} s (python -m core.nodes --listen HOST:PORT --ssm ...)"
)
NO_WELCOME = (
    "a connection is there, but no answer came within {:g} s: the node is busy with other engines' "
    "drafts, or is no node"
)
# Reported only after the wait: a handshake also fails at a proxy whose node has not started yet.
TURNED_AWAY = (
    "no handshake succeeded there within {:g} s: the node has another key (--node-key-file must be "
    "the node's key file), or what listens there is no node"
)
TOO_LONG = f"nodes take texts of at most {MOST_TOKENS} tokens: rounds go on without their drafts"


class RemotePool:
    """`addresses`: of the transport's nodes, in the transport's order. `vocab_size`: of the
    LLM."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[str],
        tokenizer_hash: str,
        vocab_size: int,
        least_deadline_s: float = LEAST_DEADLINE_S,
    ) -> None:
        self._transport = transport
        self._vocab_size = vocab_size
        self.links = [NodeLink(address, least_deadline_s) for address in addresses]
        self.drafters: dict[str, RemoteSsm] = {}
        hello = HelloMessage(VERSION, tokenizer_hash, vocab_size)
        self._arrivals = NodeArrivals(transport, hello, self.links, self.drafters)
        self._number = 0
        self._too_long: set[str] = set()  # ids of open runs that got the note TOO_LONG

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The SSMs of all nodes; `device` names the node."""
        return tuple(drafter.info for drafter in self.drafters.values())

    def place_of(self, name: str) -> int:
        """The number of the node that serves an SSM; -1 if no node does."""
        nodes = (n for n, link in enumerate(self.links) if name in link.engine_names)
        return next(nodes, -1)

    # -- connections --

    def connect(
        self, other_names: Collection[str], wait_s: float = CONNECT_S, say: Say | None = None
    ) -> RemotePool:
        """Waits for the welcome of every node, and names the nodes' SSMs; returns the pool.
        `other_names`: the names of other drafters. Raises NodeError, which names the node."""
        until = self._transport.now() + wait_s
        silent: NodeLink | None = None  # connected at the last report, without a welcome
        while waiting := [link for link in self.links if not link.ready]:
            for link in waiting:
                if link.refusal:
                    raise NodeError.of("node", link.address, link.refusal)
            now = self._transport.now()
            first = waiting[0]
            if now >= until:
                reason = TURNED_AWAY if first.handshake_failed else NOT_THERE
                reason = NO_WELCOME if first.is_connected else reason
                raise NodeError.of("node", first.address, reason.format(wait_s))
            if say is not None:
                hint = " (another key?)" if first.handshake_failed else ""
                hint = " (busy?)" if first is silent else hint
                say(f"Waiting for node {first.address}{hint}")
            silent = first if first.is_connected else None
            self._arrivals.poll(min(until, now + PROGRESS_S))
        self._name_drafters(other_names)
        return self

    def _name_drafters(self, other_names: Collection[str]) -> None:
        names = {*other_names}
        for link in self.links:
            for one in link.served_ssms:
                # SSMs of this process are named in the same way (core.models.loading.load).
                base = one.name.replace(":", "-")
                name, number = base, 2
                while name in names:
                    name, number = f"{base}-{number}", number + 1
                names.add(name)
                link.ssms[one.name] = name
                info = ModelInfo(
                    name, "ssm", one.parameters, one.architecture, one.vocab_size,
                    one.context_length, one.dtype, f"{one.device}{ON_NODE}{link.address}",
                    one.fingerprint,
                )  # fmt: skip
                self.drafters[name] = RemoteSsm(info)

    def poll(self) -> None:
        """Handles messages that have arrived; does not wait."""
        self._arrivals.poll()

    def close(self) -> None:
        """Ends the connections; the next round opens them again."""
        self._transport.close()
        # A transport does not report the connections that it ends itself.
        for link in self.links:
            link.is_connected = False
            link.mark_lost()

    # -- one round --

    def begin(self, runs: Sequence[RemoteRun], longest_s: float = LONGEST_DEADLINE_S) -> None:
        """Sends the runs' requests to each free node. `longest_s`: the longest wait for a node, in
        seconds."""
        arrivals = self._arrivals
        # A late answer makes its node free for this round.
        arrivals.poll()
        self._number += 1
        arrivals.open_runs |= {run.sequence.run_id for run in runs}
        pending = PendingRound(self._number, tuple(runs))
        for node, link in enumerate(self.links):
            link.longest_deadline_s = longest_s
            # Before `link.ready` is read: a node that has been given up gets no requests.
            link.give_up(self._transport.now())
            if link.needs_hello(self._transport.now()):
                arrivals.send_hello(node)
            part = NodeRound(link, self._ready(node, runs) if link.ready else [])
            pending.parts.append(part)
            ready_ids = {run.sequence.run_id for run, _ in part.ready}
            others = [run for run in runs if run.sequence.run_id not in ready_ids]
            own_runs, requests = requests_of(link, others, run_request)
            if not requests:
                continue
            # Also for a node that is not free, so that the runs' events report its absence.
            part.runs = tuple(own_runs)
            if link.free:
                # A draft made ahead that arrives later continues an earlier text.
                arrivals.ahead.overtake(node)
                link.begin_round(self._number, self._transport.now())
                part.clock = DraftClock()
                self._transport.send(node, encode(RoundMessage(self._number, requests)))
        arrivals.round = pending

    def finish(self) -> dict[str, NodeAnswers]:
        """The answers by run id, when all nodes have answered or their deadlines have passed."""
        pending = self._arrivals.round
        assert pending is not None, "begin comes first"
        # Not `awaited`: these answers may have waited while local SSMs drafted, so their
        # round-trip times are inexact.
        self._arrivals.poll()
        waiting = [link for link in self.links if link.pending_number == pending.number]
        while waiting:
            self._arrivals.poll(min(link.round_ends_at for link in waiting), awaited=True)
            now = self._transport.now()
            # A late link keeps its `pending_number`: it is not free for another round.
            waiting = [
                link
                for link in waiting
                if link.pending_number == pending.number and now < link.round_ends_at
            ]
        # From here on an answer is late.
        self._arrivals.round = None
        answers = pending.answers(self.drafters, self._vocab_size, self._transport.now())
        for run in pending.runs:
            run_id = run.sequence.run_id
            if is_too_long(run.sequence) and run_id not in self._too_long:
                self._too_long.add(run_id)
                answers[run_id].notes.append(TOO_LONG)
        return answers

    def begin_ahead(self, runs: Sequence[AheadRun]) -> None:
        """Sends each free node the trees that the LLM verifies next."""
        self._number += 1
        for node, link in enumerate(self.links):
            own_runs, requests = requests_of(link, runs, ahead_request) if link.free else ([], [])
            if requests:
                now = self._transport.now()
                self._arrivals.ahead.record_sent(node, self._number, now, own_runs)
                self._transport.send(node, encode(AheadMessage(self._number, requests)))

    def end_ahead(self, sequences: Sequence[TokenSequence]) -> list[AheadDraftsByName]:
        """The drafts of `begin_ahead` that have arrived, by sequence and SSM; does not wait."""
        self._arrivals.poll()
        return [self._arrivals.ahead.ahead_drafts(sequence.run_id) for sequence in sequences]

    def free(self, sequence: TokenSequence) -> None:
        """Frees an ended run on the nodes."""
        if sequence.run_id not in self._arrivals.open_runs:
            return
        self._arrivals.open_runs.discard(sequence.run_id)
        self._too_long.discard(sequence.run_id)
        self._arrivals.ahead.free(sequence.run_id)
        for node, link in enumerate(self.links):
            link.held_tokens.pop(sequence.run_id, None)
            link.notified_runs.discard(sequence.run_id)
            # A node that is not ready has ended, or frees unused runs itself.
            if link.ready:
                self._transport.send(node, encode(FreeMessage([sequence.run_id])))

    def _ready(self, node: int, runs: Sequence[RemoteRun]) -> list[tuple[RemoteRun, ReadyDrafts]]:
        """The runs that need no request to this node: the drafts were made ahead."""
        own = self.links[node].engine_names
        ready_runs = []
        for run in runs:
            requests = [one for one in run.requests if one.name in own]
            ready = self._arrivals.ahead.ready_drafts(node, run.sequence, requests)
            # An audition (`to_score`) always needs a request.
            if ready is not None and not own.keys() & {*run.to_score}:
                ready_runs.append((run, ready))
        return ready_runs
