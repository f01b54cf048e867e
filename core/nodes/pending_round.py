"""PendingRound: the current round on the nodes; NodeAnswers: its results for one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.drafters.base import DraftRequest
from core.errors import NodeError
from core.events import NodeTrip
from core.nodes.ahead import ReadyDrafts
from core.nodes.answers import DraftClock, draft_of, fault_of
from core.nodes.messages import DraftsMessage, RunReply
from core.nodes.node_link import NodeLink
from core.nodes.remote_ssm import RemoteSsm
from core.nodes.run_requests import RemoteRun
from core.trees.draft import Draft

__all__ = ["NodeAnswers", "PendingRound"]


@dataclass(slots=True)
class NodeAnswers:
    """A run's results from all nodes: drafts and errors by drafter index; `auditions`:
    log-probabilities by SSM, and the time they took; the round trip to each node with a request;
    `notes`: sentences for the user. `ahead`: requests whose drafts arrived before the round."""

    drafts: dict[int, Draft] = field(default_factory=dict)
    errors: dict[int, NodeError] = field(default_factory=dict)
    auditions: dict[str, list[float]] = field(default_factory=dict)
    audition_ms: float = 0.0
    trips: list[NodeTrip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ahead: list[DraftRequest] = field(default_factory=list)


@dataclass(slots=True)
class PendingRound:
    """By node: `requested_runs`, the runs with requests to it; `deadlines`, on the transport's
    clock; `clocks` of messages; `ready`, drafts that arrived before the round; `messages`, its
    answer; `refusals`, why it refused the round."""

    number: int
    runs: tuple[RemoteRun, ...]
    requested_runs: dict[int, tuple[RemoteRun, ...]] = field(default_factory=dict)
    deadlines: dict[int, float] = field(default_factory=dict)
    clocks: dict[int, DraftClock] = field(default_factory=dict)
    ready: dict[int, list[tuple[RemoteRun, ReadyDrafts]]] = field(default_factory=dict)
    messages: dict[int, DraftsMessage] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)

    def answers(
        self,
        links: Sequence[NodeLink],
        drafters: Mapping[str, RemoteSsm],
        vocab_size: int,
        now: float,
    ) -> dict[str, NodeAnswers]:
        """The results by run id. Temperatures and likelihoods that the nodes report are recorded in
        `drafters`. `now`: on the transport's clock."""
        answers = {run.sequence.run_id: NodeAnswers() for run in self.runs}
        _share_time([self.clocks[node] for node in self.messages])
        for node, ready in self.ready.items():
            _add_ready(links[node], ready, answers)
        for node, runs in self.requested_runs.items():
            link = links[node]
            state, missing = self._outcome(node, link, now)
            for run in runs:
                answer = answers[run.sequence.run_id]
                answer.notes += link.notes_for(run.sequence.run_id, missing)
                answer.trips.append(self._trip(node, link, state, run))
                reply = self._reply(node, run)
                if reply is not None:
                    _add_reply(link, run, reply, self.clocks[node], answer, drafters, vocab_size)
        return answers

    def _outcome(self, node: int, link: NodeLink, now: float) -> tuple[str, str]:
        """`NodeTrip.state` of a node, and why it did not answer in time, empty if it did. Records
        an absence in its link."""
        if node in self.messages:
            link.end_absence(now)
            return "in_time", ""
        state = "late" if link.pending_number == self.number else "absent"
        link.begin_absence(now)
        return state, link.missing_reason(late=state == "late", why=self.refusals.get(node, ""))

    def _trip(self, node: int, link: NodeLink, state: str, run: RemoteRun) -> NodeTrip:
        trip_ms = link.trips[-1] * 1000 if node in self.messages else 0.0
        trip = NodeTrip(
            link.address, state, trip_ms, link.round_deadline_s * 1000, starts=link.starts
        )
        if (clock := self.clocks.get(node)) is not None:
            start_ms, end_ms = run.sequence.ms(clock.sent), run.sequence.ms(clock.came or None)
            trip = replace(trip, start_ms=start_ms, end_ms=end_ms)
        if (reply := self._reply(node, run)) is not None:
            busy_ms = self.messages[node].busy_ms
            trip = replace(trip, busy_ms=busy_ms, drafts=len(reply.drafts))
        return trip

    def _reply(self, node: int, run: RemoteRun) -> RunReply | None:
        message = self.messages.get(node)
        if message is None:
            return None
        # The last one, should a faulty node send several replies to one run.
        replies = (one for one in reversed(message.runs) if one.run == run.sequence.run_id)
        return next(replies, None)


def _add_ready(
    link: NodeLink,
    ready: Sequence[tuple[RemoteRun, ReadyDrafts]],
    answers: Mapping[str, NodeAnswers],
) -> None:
    """Adds a node's drafts that arrived before the round."""
    for run, ready_drafts in ready:
        answer = answers[run.sequence.run_id]
        answer.drafts |= ready_drafts.drafts
        answer.ahead += ready_drafts.requests
        clock = ready_drafts.clock
        answer.trips.append(
            NodeTrip(
                link.address,
                "ahead",
                (clock.came - clock.sent) * 1000,
                link.deadline_s * 1000,
                busy_ms=clock.busy_s * 1000,
                drafts=len(ready_drafts.drafts),
                starts=link.starts,
                start_ms=run.sequence.ms(clock.sent),
                end_ms=run.sequence.ms(clock.came),
            )
        )


def _add_reply(
    link: NodeLink,
    run: RemoteRun,
    reply: RunReply,
    clock: DraftClock,
    answer: NodeAnswers,
    drafters: Mapping[str, RemoteSsm],
    vocab_size: int,
) -> None:
    """Adds a node's drafts and auditions to the run's `answer`; drafts that were not requested are
    ignored, faulty ones become errors."""
    requests = {one.index: one for one in run.requests if one.name in link.engine_names}
    for one in reply.drafts:
        name = link.ssms.get(one.ssm, "")
        request = requests.get(one.index)
        if request is None or request.name != name:
            continue
        draft = draft_of(one, name, clock, len(reply.drafts))
        fault = one.error or fault_of(request, draft, one.likelihoods, requests, vocab_size)
        if fault:
            answer.errors[one.index] = NodeError(f"node {link.address}: {fault}")
            continue
        answer.drafts[one.index] = draft
        drafters[name].observe(run.sequence.run_id, one.temperature, one.likelihoods)
    scored = min(run.window, len(run.sequence.tokens)) - 1
    for audition in reply.auditions:
        name = link.ssms.get(audition.ssm, "")
        # Routers compare what SSMs give to the same tokens.
        if name in run.to_score and len(audition.log_probs) == scored:
            answer.auditions[name] = audition.log_probs
            answer.audition_ms += audition.ms


def _share_time(clocks: Sequence[DraftClock]) -> None:
    """Sets the clocks' shares: the times of nodes that work side by side add up to the time from
    the first message to the last answer."""
    total = sum(clock.came - clock.sent for clock in clocks)
    if total > 0:
        elapsed = max(clock.came for clock in clocks) - min(clock.sent for clock in clocks)
        for clock in clocks:
            clock.share = min(1.0, elapsed / total)
