"""RemotePool: the SSMs of all nodes, asked once a round with one message a node.

`begin` sends what all runs of a round want, `finish` waits for the answers, each node at most until
its deadline; `begin_ahead` asks for drafts after the LLM's pass, which nobody waits for. A node
that is late or absent is left out of that round and is asked again as soon as it is free: its
drafts are proposals, so that no text depends on them. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.drafters.ahead import AheadDraftsByName
from core.drafters.base import DraftRequest
from core.drafters.draft_batch import stop_limits
from core.errors import NodeError
from core.events import ModelInfo, NodeTrip
from core.events.parts import ON_NODE
from core.models.loading.stages import Say
from core.nodes.ahead import AheadExchange, AheadRun, ReadyDrafts
from core.nodes.answers import DraftClock, are_probabilities, draft_of, fault_of
from core.nodes.messages import (
    MOST_RUNS,
    MOST_TOKENS,
    VERSION,
    Ahead,
    AheadAsk,
    AheadDrafts,
    DraftAsk,
    Drafts,
    Free,
    Hello,
    MessageError,
    Refused,
    Round,
    RunAsk,
    Welcome,
    encode,
    from_node,
)
from core.nodes.node_link import LEAST_DEADLINE_S, LONGEST_DEADLINE_S, NodeLink
from core.nodes.remote_ssm import RemoteSsm
from core.nodes.served_run import limits_message, open_message
from core.nodes.transport import Arrival, Transport
from core.sequence import TokenSequence
from core.trees.draft import Draft

__all__ = ["NodeAnswers", "RemotePool", "RemoteRun"]

CONNECT_S = 60.0
"""How long an engine waits for its nodes at the start, so that either may be started first."""
SHOWN_S = 1.0


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """What one run wants of the nodes in a round: drafts, with the weights of their drafters by
    index; an audition of the SSMs `heard` on the last `window` tokens; the `top_k` likeliest tokens
    of each node."""

    sequence: TokenSequence
    requests: tuple[DraftRequest, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    window: int = 0
    top_k: int = 0


@dataclass(slots=True)
class NodeAnswers:
    """What came of one run's part: drafts and errors by drafter index, log-probabilities by SSM,
    each asked node's trip, and sentences for the reader. `ahead`: the requests whose drafts had
    been made before the round."""

    drafts: dict[int, Draft] = field(default_factory=dict)
    errors: dict[int, NodeError] = field(default_factory=dict)
    auditions: dict[str, list[float]] = field(default_factory=dict)
    audition_ms: float = 0.0
    trips: list[NodeTrip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ahead: list[DraftRequest] = field(default_factory=list)


@dataclass(slots=True)
class _Pending:
    """A round under way: what each node was asked, when, and what it answered; `ready`: drafts that
    were there before; `first`: ids of runs that have not been asked for before."""

    number: int
    runs: tuple[RemoteRun, ...]
    asked: dict[int, tuple[RemoteRun, ...]]
    deadlines: dict[int, float]
    clocks: dict[int, DraftClock]
    first: frozenset[str] = frozenset()
    ready: dict[int, list[tuple[RemoteRun, ReadyDrafts]]] = field(default_factory=dict)
    answers: dict[int, Drafts] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)


class RemotePool:
    """`addresses` names the transport's nodes, in its order. `vocab_size`: the LLM's."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[str],
        tokenizer_hash: str,
        vocab_size: int,
        least_deadline_s: float = LEAST_DEADLINE_S,
    ) -> None:
        self._transport = transport
        self._hello = Hello(VERSION, tokenizer_hash, vocab_size)
        self._vocab_size = vocab_size
        self.links = [NodeLink(address, least_deadline_s) for address in addresses]
        self.drafters: dict[str, RemoteSsm] = {}
        self._number = 0
        self._pending: _Pending | None = None
        self._ahead = AheadExchange(vocab_size)
        # Runs that were asked for and have not ended: another one's answer may come too late.
        self._runs: set[str] = set()

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The SSMs of all nodes; `device` names the node."""
        return tuple(drafter.info for drafter in self.drafters.values())

    def place_of(self, name: str) -> int:
        """The number of the node that an SSM is on; -1: it is on none."""
        places = (n for n, link in enumerate(self.links) if name in link.ssms.values())
        return next(places, -1)

    # -- connections --

    def connect(
        self, taken: Collection[str], wait_s: float = CONNECT_S, say: Say | None = None
    ) -> RemotePool:
        """Waits until every node has introduced itself, and names its SSMs; returns itself.
        `taken`: names that other drafters have. Raises NodeError naming the node."""
        until = self._transport.now() + wait_s
        while waiting := [link for link in self.links if not link.ready]:
            for link in waiting:
                if link.refusal:
                    raise NodeError(f"node is {link.address!r}: {link.refusal}")
            now = self._transport.now()
            if now >= until:
                raise NodeError(
                    f"node is {waiting[0].address!r}: no node answered there within {wait_s:g} s "
                    "(python -m core.nodes --listen HOST:PORT --ssm ...)"
                )
            if say is not None:
                say(f"Waiting for node {waiting[0].address}")
            self._take_all(self._transport.poll(min(until, now + SHOWN_S)))
        self._name_drafters(taken)
        return self

    def _name_drafters(self, taken: Collection[str]) -> None:
        used = {*taken}
        for link in self.links:
            for one in link.served:
                own = one.name.replace(":", "-")
                name, number = own, 2
                while name in used:
                    name, number = f"{own}-{number}", number + 1
                used.add(name)
                link.ssms[one.name] = name
                info = ModelInfo(
                    name, "ssm", one.parameters, one.architecture, one.vocab_size,
                    one.context_length, one.dtype, f"{one.device}{ON_NODE}{link.address}",
                    one.fingerprint,
                )  # fmt: skip
                self.drafters[name] = RemoteSsm(name, info)

    def close(self) -> None:
        """Ends the connections; the next round opens them again."""
        self._transport.close()
        for link in self.links:
            link.lose()

    # -- one round --

    def begin(self, runs: Sequence[RemoteRun], longest_s: float = LONGEST_DEADLINE_S) -> None:
        """Sends each node that is free what the runs want of its SSMs; more than MOST_RUNS are not
        asked for. `longest_s`: no node is waited for longer."""
        self._take_all(self._transport.poll(self._transport.now()))
        self._number += 1
        ids = {run.sequence.run_id for run in runs}
        first, self._runs = frozenset(ids - self._runs), self._runs | ids
        pending = _Pending(self._number, tuple(runs), {}, {}, {}, first)
        for node, link in enumerate(self.links):
            link.longest_deadline_s = longest_s
            link.give_up(self._transport.now())
            if link.needs_hello(self._transport.now()):
                self._introduce(node, link)
            ready = self._ready(node, link, runs) if link.ready else []
            pending.ready[node] = ready
            taken = {run.sequence.run_id for run, _ in ready}
            wanting = [
                (run, self._ask(link, run)) for run in runs if run.sequence.run_id not in taken
            ]
            asks = [(run, ask) for run, ask in wanting if ask is not None][:MOST_RUNS]
            if not asks:
                continue
            pending.asked[node] = tuple(run for run, _ in asks)
            if link.free:
                self._ahead.overtake(node)
                link.ask(self._number, self._transport.now())
                pending.deadlines[node] = link.asked_at + link.waited_s
                pending.clocks[node] = DraftClock()
                self._transport.send(node, encode(Round(self._number, [ask for _, ask in asks])))
        self._pending = pending

    def finish(self) -> dict[str, NodeAnswers]:
        """The answers by run id, when all nodes have answered or their deadlines have passed."""
        pending = self._pending
        assert pending is not None, "begin comes first"
        # What came while SSMs here drafted was not waited for.
        self._take_all(self._transport.poll(self._transport.now()))
        while awaited := [
            node for node in pending.deadlines if self.links[node].asked == pending.number
        ]:
            first = min(pending.deadlines[node] for node in awaited)
            self._take_all(self._transport.poll(first), awaited=True)
            now = self._transport.now()
            for node in awaited:
                if now >= pending.deadlines[node]:
                    # Left out; it stays asked, so that it is not sent another round meanwhile.
                    pending.deadlines.pop(node)
        self._pending = None
        answers = {run.sequence.run_id: NodeAnswers() for run in pending.runs}
        _share_time([pending.clocks[node] for node in pending.answers])
        for node, ready in pending.ready.items():
            self._settle_ready(node, ready, answers)
        for node in pending.asked:
            self._settle(pending, node, answers)
        return answers

    def begin_ahead(self, runs: Sequence[AheadRun]) -> None:
        """Sends each node that is free the trees that the LLM is about to verify."""
        self._number += 1
        for node, link in enumerate(self.links):
            wanting = [(run, self._ahead_ask(link, run)) for run in runs] if link.free else []
            asks = [(run, ask) for run, ask in wanting if ask is not None][:MOST_RUNS]
            if asks:
                now = self._transport.now()
                self._ahead.ask(node, self._number, now, [run for run, _ in asks])
                self._transport.send(node, encode(Ahead(self._number, [ask for _, ask in asks])))

    def end_ahead(self, sequences: Sequence[TokenSequence]) -> list[AheadDraftsByName]:
        """What the nodes have drafted of that until now, by sequence and SSM; waits for nothing."""
        self._take_all(self._transport.poll(self._transport.now()))
        return [self._ahead.ahead_drafts(sequence.run_id) for sequence in sequences]

    def free(self, sequence: TokenSequence) -> None:
        """Tells the nodes that hold a run's text that it has ended."""
        if sequence.run_id not in self._runs:
            return
        self._runs.discard(sequence.run_id)
        self._ahead.free(sequence.run_id)
        for node, link in enumerate(self.links):
            link.held.pop(sequence.run_id, None)
            if link.ready:
                self._transport.send(node, encode(Free([sequence.run_id])))

    def _ask(self, link: NodeLink, run: RemoteRun) -> RunAsk | None:
        """A run's part of the message to a node; None where it wants nothing of it."""
        own = {name: served for served, name in link.ssms.items()}
        requests = [request for request in run.requests if request.name in own]
        heard = [own[name] for name in run.heard if name in own]
        sequence = run.sequence
        if not (requests or heard) or len(sequence.tokens) > MOST_TOKENS:
            return None
        ask = _text_ask(link, sequence, run.top_k)
        ask.asks = [_draft_ask(own[one.name], one, run.weights) for one in requests]
        ask.audition, ask.heard = (run.window if heard else 0), heard
        return ask

    def _ahead_ask(self, link: NodeLink, run: AheadRun) -> AheadAsk | None:
        own = {name: served for served, name in link.ssms.items()}
        asks = [
            _draft_ask(own[one.name], one, run.weights) for one in run.requests if one.name in own
        ]
        if not asks or len(run.sequence.tokens) > MOST_TOKENS:
            return None
        text = _text_ask(link, run.sequence, run.top_k)
        text.asks = [
            _draft_ask(own[one.name], one, run.weights) for one in run.verified if one.name in own
        ]
        tree = run.tree
        return AheadAsk(text, [*tree.token_ids], [*tree.parents], asks, run.room)

    def _ready(
        self, node: int, link: NodeLink, runs: Sequence[RemoteRun]
    ) -> list[tuple[RemoteRun, ReadyDrafts]]:
        """The runs whose drafts of this node have been made ahead: it is not asked for them."""
        own = {*link.ssms.values()}
        found = []
        for run in runs:
            requests = [one for one in run.requests if one.name in own]
            ready = self._ahead.ready_drafts(node, run.sequence, requests)
            if ready is not None and not own.intersection(run.heard):
                found.append((run, ready))
        return found

    def _settle_ready(
        self,
        node: int,
        ready: Sequence[tuple[RemoteRun, ReadyDrafts]],
        answers: dict[str, NodeAnswers],
    ) -> None:
        """The part of the answers that needed no message of this round."""
        link = self.links[node]
        link.counts["ahead"] += bool(ready)
        for run, made in ready:
            answer = answers[run.sequence.run_id]
            answer.drafts |= made.drafts
            answer.ahead += made.requests
            clock = made.clock
            answer.trips.append(
                NodeTrip(
                    link.address,
                    "ahead",
                    (clock.came - clock.sent) * 1000,
                    link.deadline_s * 1000,
                    busy_ms=clock.busy_s * 1000,
                    drafts=len(made.drafts),
                    starts=link.starts,
                    start_ms=run.sequence.ms(clock.sent),
                    end_ms=run.sequence.ms(clock.came),
                )
            )

    def _settle(self, pending: _Pending, node: int, answers: dict[str, NodeAnswers]) -> None:
        """One node's part of the answers: its drafts, its trip, and what changed."""
        link, message = self.links[node], pending.answers.get(node)
        is_late = message is None and link.asked == pending.number
        state = "in_time" if message else "late" if is_late else "absent"
        link.counts[state] += 1
        notes = self._changes(link, state, pending.refusals.get(node, ""))
        trip_ms = link.trips[-1] * 1000 if message else 0.0
        trip = NodeTrip(link.address, state, trip_ms, link.waited_s * 1000, starts=link.starts)
        replies = {reply.run: reply for reply in message.runs} if message else {}
        clock = pending.clocks.get(node)
        for run in pending.asked[node]:
            answer = answers[run.sequence.run_id]
            answer.notes += notes
            if not notes and state != "in_time" and run.sequence.run_id in pending.first:
                answer.notes.append(_missing_note(link, state, ""))
            if clock is not None:
                start_ms, end_ms = run.sequence.ms(clock.sent), run.sequence.ms(clock.came or None)
                trip = replace(trip, start_ms=start_ms, end_ms=end_ms)
            reply = replies.get(run.sequence.run_id)
            if message is None or reply is None or clock is None:
                answer.trips.append(trip)
                continue
            own = {*link.ssms.values()}
            requests = {one.index: one for one in run.requests if one.name in own}
            for one in reply.drafts:
                name = link.ssms.get(one.ssm, "")
                request = requests.get(one.index)
                if request is None or request.name != name:
                    continue
                draft = draft_of(one, name, clock, len(reply.drafts))
                fault = one.error or fault_of(
                    request, draft, one.likelihoods, requests, self._vocab_size
                )
                if fault:
                    answer.errors[one.index] = NodeError(f"node {link.address}: {fault}")
                    continue
                answer.drafts[one.index] = draft
                self.drafters[name].observe(run.sequence.run_id, one.temperature, one.likelihoods)
            for audition in reply.auditions:
                if audition.ssm in link.ssms:
                    answer.auditions[link.ssms[audition.ssm]] = audition.log_probs
                    answer.audition_ms += audition.ms
            answer.trips.append(replace(trip, busy_ms=message.busy_ms, drafts=len(reply.drafts)))

    def _changes(self, link: NodeLink, state: str, refusal: str) -> list[str]:
        """What the runs under way are told: that a node is missing, once, and that it is there
        again."""
        now = self._transport.now()
        if state == "in_time":
            if link.missing_since is None:
                return []
            away, link.missing_since = now - link.missing_since, None
            return [f"node {link.address} drafts again, after {away:.1f} s"]
        if link.missing_since is not None:
            return []
        link.missing_since = now
        return [_missing_note(link, state, refusal)]

    # -- arrivals --

    def _take_all(self, arrivals: Sequence[Arrival], *, awaited: bool = False) -> None:
        """`awaited`: they are taken when they come, so that round trips are measured."""
        for arrival in arrivals:
            link = self.links[arrival.node]
            if arrival.change == "up":
                self._introduce(arrival.node, link)
            elif arrival.change == "down":
                link.lose()
                self._ahead.forget(arrival.node)
            elif arrival.change == "refused":
                link.lose("it has another key: --node-key-file is to be the file it started with")
            elif arrival.frame is not None:
                self._take(arrival.node, link, arrival.frame, awaited)

    def _take(self, node: int, link: NodeLink, frame: bytes, awaited: bool) -> None:
        try:
            message = from_node(frame)
        except MessageError as error:
            link.lose(str(error))
            return
        if isinstance(message, Welcome):
            link.wire_s = self._transport.now() - link.hello_at
            link.welcome(message)
        elif isinstance(message, Refused):
            self._take_refusal(node, link, message)
        elif isinstance(message, AheadDrafts):
            self._take_ahead(node, link, message)
        else:
            self._take_drafts(node, link, message, awaited)

    def _take_refusal(self, node: int, link: NodeLink, message: Refused) -> None:
        if not message.number:
            link.lose(message.reason)
            return
        # It has forgotten this engine, or refuses this round: it is introduced anew.
        if link.asked == message.number:
            link.lose()
            self._introduce(node, link)
        if self._pending is not None and message.number == self._pending.number:
            self._pending.refusals[node] = f"refused the round ({message.reason})"

    def _take_drafts(self, node: int, link: NodeLink, message: Drafts, awaited: bool) -> None:
        pending, now = self._pending, self._transport.now()
        late = pending is None or message.number != pending.number
        busy_s, awaited = message.busy_ms / 1000, awaited and not late
        if not link.take_answer(message.number, now, busy_s, awaited=awaited, late=late):
            return
        for reply in message.runs:
            if reply.need >= 0:
                link.held.pop(reply.run, None)
            elif reply.run in self._runs:
                link.held[reply.run] = reply.length
        if pending is not None and not late:
            pending.clocks[node].stop(busy_s, None if awaited else link.trips[-1])
            pending.answers[node] = message

    def _take_ahead(self, node: int, link: NodeLink, message: AheadDrafts) -> None:
        in_round, now = self._pending is not None, self._transport.now()
        for reply in self._ahead.take(
            node, message, now, link.wire_s, link.ssms, in_round=in_round
        ):
            if reply.need >= 0:
                link.held.pop(reply.run, None)
            elif reply.run in self._runs:
                link.held[reply.run] = reply.length
            for one in reply.verified:
                if one.ssm in link.ssms and not one.error and are_probabilities(one.likelihoods):
                    drafter = self.drafters[link.ssms[one.ssm]]
                    drafter.observe(reply.run, one.temperature, one.likelihoods)

    def _introduce(self, node: int, link: NodeLink) -> None:
        link.hello_at = self._transport.now()
        self._transport.send(node, encode(self._hello))


def _missing_note(link: NodeLink, state: str, refusal: str) -> str:
    why = (
        f"did not answer within {link.waited_s * 1000:.0f} ms"
        if state == "late"
        else refusal or link.refusal or "is not there"
    )
    return f"node {link.address} {why}: rounds go on without its drafts until it answers"


def _share_time(clocks: Sequence[DraftClock]) -> None:
    """Nodes that work side by side: their times add up to that of the slowest."""
    total = sum(clock.came - clock.sent for clock in clocks)
    if total > 0:
        longest = max(clock.came for clock in clocks) - min(clock.sent for clock in clocks)
        for clock in clocks:
            clock.share = min(1.0, longest / total)


def _text_ask(link: NodeLink, sequence: TokenSequence, top_k: int) -> RunAsk:
    """A run's text as far as the node may lack it; nothing is wanted yet."""
    start = link.held.get(sequence.run_id, 0)
    opened = None if start else open_message(sequence)
    return RunAsk(sequence.run_id, start, sequence.tokens[start:], opened, [], 0, [], top_k)


def _draft_ask(ssm: str, request: DraftRequest, weights: Mapping[int, float]) -> DraftAsk:
    limits = stop_limits(request)
    return DraftAsk(
        ssm=ssm,
        index=request.index,
        kind=request.kind,
        shape=list(request.shape),
        budget=request.budget,
        weight=weights.get(request.index, 1.0),
        stop=None if limits is None or request.stop is None else limits_message(limits),
    )
