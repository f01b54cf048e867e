"""PendingRound: the current round on all nodes; NodeAnswers: its results for one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.drafters.base import DraftRequest
from core.errors import NodeError
from core.events import NodeTrip
from core.remote_ssms.ahead import ReadyDrafts
from core.remote_ssms.answers import DraftClock, draft_of, fault_of
from core.remote_ssms.messages import DraftsMessage, RunReply
from core.remote_ssms.node_link import NodeLink
from core.remote_ssms.remote_ssm import RemoteSsm
from core.remote_ssms.run_requests import RemoteRun
from core.trees.draft import Draft

__all__ = ["NodeAnswers", "NodeRound", "PendingRound"]


@dataclass(slots=True)
class NodeAnswers:
    """A run's results from all nodes. `drafts`, `errors`: by drafter index. `auditions`: by SSM,
    log-probabilities of the text's last tokens; `audition_ms`: the time of scoring. `notes`:
    sentences for the user. `ahead`: requests whose drafts arrived before the round."""

    drafts: dict[int, Draft] = field(default_factory=dict)
    errors: dict[int, NodeError] = field(default_factory=dict)
    auditions: dict[str, list[float]] = field(default_factory=dict)
    audition_ms: float = 0.0
    trips: list[NodeTrip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ahead: list[DraftRequest] = field(default_factory=list)


@dataclass(slots=True)
class NodeRound:
    """One node's part of a round. `ready`: drafts that arrived before the round; `runs`: the runs
    with requests for this node; `clock`: None if no message was sent; `message`: the answer;
    `refusal`: why the node refused the round."""

    link: NodeLink
    ready: list[tuple[RemoteRun, ReadyDrafts]]
    runs: tuple[RemoteRun, ...] = ()
    clock: DraftClock | None = None
    message: DraftsMessage | None = None
    refusal: str = ""

    def record_outcome(self, number: int, now: float) -> tuple[str, str]:
        """Records in the link whether the node answered round `number`. Returns `NodeTrip.state`,
        and why no answer came in time, or an empty string."""
        link = self.link
        if self.message is not None:
            link.end_absence(now)
            return "in_time", ""
        # `late`: the answer to this round is still expected.
        state = "late" if link.pending_number == number else "absent"
        link.begin_absence(now)
        return state, link.missing_reason(late=state == "late", why=self.refusal)

    def trip(self, state: str, run: RemoteRun) -> NodeTrip:
        """The round trip for one run."""
        link, sequence = self.link, run.sequence
        trip_ms = 0.0 if self.message is None else link.trips[-1] * 1000
        trip = NodeTrip(
            link.address, state, trip_ms, link.round_deadline_s * 1000, starts=link.starts
        )
        if self.clock is not None:
            start_ms = sequence.ms(self.clock.sent)
            # `received` is 0 without an answer: the engine has waited until now.
            end_ms = sequence.ms(self.clock.received or None)
            trip = replace(trip, start_ms=start_ms, end_ms=end_ms)
        if self.message is not None and (reply := self.reply(run)) is not None:
            busy_ms = min(self.message.busy_ms, trip_ms)
            trip = replace(trip, busy_ms=busy_ms, drafts=len(reply.drafts))
        return trip

    def reply(self, run: RemoteRun) -> RunReply | None:
        """The node's reply to one run."""
        if self.message is None:
            return None
        # A faulty node may send several replies to one run: the last counts.
        replies = (one for one in reversed(self.message.runs) if one.run == run.sequence.run_id)
        return next(replies, None)

    def add_ready(self, answers: Mapping[str, NodeAnswers]) -> None:
        """Adds the drafts that arrived before the round."""
        for run, ready in self.ready:
            answer = answers[run.sequence.run_id]
            answer.drafts |= ready.drafts
            answer.ahead += ready.requests
            clock = ready.clock
            trip_ms = (clock.received - clock.sent) * 1000
            answer.trips.append(
                NodeTrip(
                    self.link.address,
                    "ahead",
                    trip_ms,
                    self.link.deadline_s * 1000,
                    busy_ms=min(clock.busy_s * 1000, trip_ms),
                    drafts=len(ready.drafts),
                    starts=self.link.starts,
                    start_ms=run.sequence.ms(clock.sent),
                    end_ms=run.sequence.ms(clock.received),
                )
            )

    def add_reply(
        self,
        run: RemoteRun,
        answer: NodeAnswers,
        drafters: Mapping[str, RemoteSsm],
        vocab_size: int,
    ) -> None:
        """Adds the node's drafts and auditions to the run's `answer`. Drafts that were not
        requested are ignored; faulty drafts become errors."""
        reply, link = self.reply(run), self.link
        if reply is None or self.clock is None:
            return
        requests = {one.index: one for one in run.requests if one.name in link.engine_names}
        for one in reply.drafts:
            name = link.ssms.get(one.ssm, "")
            request = requests.get(one.index)
            if request is None or request.name != name:
                continue
            draft = draft_of(one, name, self.clock, len(reply.drafts))
            # A malformed tree from the node would fail the LLM's pass of all runs.
            fault = one.error or fault_of(request, draft, one.likelihoods, requests, vocab_size)
            if fault:
                answer.errors[one.index] = NodeError(f"node {link.address}: {fault}")
                continue
            answer.drafts[one.index] = draft
            drafters[name].observe(run.sequence.run_id, one.temperature, one.likelihoods)
        # The first token of the window has no score (see `SsmDrafter.audition`).
        num_scores = min(run.window, len(run.sequence.tokens)) - 1
        for audition in reply.auditions:
            name = link.ssms.get(audition.ssm, "")
            # Another number of scores belongs to other tokens: they cannot be compared.
            if name in run.to_score and len(audition.log_probs) == num_scores:
                answer.auditions[name] = audition.log_probs
                answer.audition_ms += audition.ms


@dataclass(slots=True)
class PendingRound:
    """`parts`: one for each node, in the order of `RemotePool.links`."""

    number: int
    runs: tuple[RemoteRun, ...]
    parts: list[NodeRound] = field(default_factory=list)

    def answers(
        self, drafters: Mapping[str, RemoteSsm], vocab_size: int, now: float
    ) -> dict[str, NodeAnswers]:
        """The results by run id. Records reported temperatures and likelihoods in `drafters`.
        `now`: on the transport's clock."""
        answers = {run.sequence.run_id: NodeAnswers() for run in self.runs}
        _share_time([part.clock for part in self.parts if part.message and part.clock])
        for part in self.parts:
            part.add_ready(answers)
        for part in self.parts:
            # Without a request in this round a node is neither late nor absent.
            if not part.runs:
                continue
            state, missing = part.record_outcome(self.number, now)
            for run in part.runs:
                answer = answers[run.sequence.run_id]
                answer.notes += part.link.notes_for(run.sequence.run_id, missing)
                answer.trips.append(part.trip(state, run))
                part.add_reply(run, answer, drafters, vocab_size)
        return answers


def _share_time(clocks: Sequence[DraftClock]) -> None:
    """Sets each clock's `share` so that the nodes' times add up to at most the time from the first
    message to the last answer."""
    total = sum(clock.received - clock.sent for clock in clocks)
    if total > 0:
        elapsed = max(clock.received for clock in clocks) - min(clock.sent for clock in clocks)
        for clock in clocks:
            clock.share = min(1.0, elapsed / total)
