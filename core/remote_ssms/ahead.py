"""The engine's side of drafting ahead: nodes draft for the next round while the LLM verifies.

A round uses a node's drafts without a round trip if the drafts follow the committed tokens, arrived
before the round, and serve all of the round's requests to the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.drafters.ahead import AheadDraft, AheadDraftsByName
from core.drafters.base import DraftRequest
from core.remote_ssms.answers import DraftClock, draft_of, fault_of, fitted_draft, local_timings
from core.remote_ssms.messages import AheadDraftsMessage, AheadReply
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import TokenTree

__all__ = ["AheadExchange", "AheadRun", "ReadyDrafts"]


@dataclass(frozen=True, slots=True)
class AheadRun:
    """One run whose `tree` the LLM verifies. `requests`: the next round's draft requests if this
    round commits one token; `weights`: the drafters' weights, by index; `verified`: the requests
    whose drafts were made ahead and are being verified; `room`: see `TokenSequence.room`."""

    sequence: TokenSequence
    tree: TokenTree
    requests: tuple[DraftRequest, ...]
    verified: tuple[DraftRequest, ...]
    weights: Mapping[int, float]
    room: int
    top_k: int = 0


@dataclass(slots=True)
class ReadyDrafts:
    """A node's drafts that arrived before the round, by drafter index, and the requests that the
    drafts serve completely. `clock`: of the message that brought the drafts."""

    clock: DraftClock
    drafts: dict[int, Draft] = field(default_factory=dict)
    requests: list[DraftRequest] = field(default_factory=list)


@dataclass(slots=True)
class _SentMessage:
    """An unanswered message. `sent_at`: on the transport's clock; `runs`: by run id, with the
    number of the run's tokens; `is_overtaken`: a round was sent to the node since."""

    number: int
    sent_at: float
    clock: DraftClock
    runs: dict[str, tuple[AheadRun, int]]
    is_overtaken: bool = False


@dataclass(frozen=True, slots=True)
class _StoredDrafts:
    """A run's drafts, made after a text of `length` tokens. `names`: the engine's names of SSMs, by
    the node's names."""

    run: AheadRun
    length: int
    reply: AheadReply
    clock: DraftClock
    names: Mapping[str, str]


class AheadExchange:
    """Keeps unanswered ahead messages and the drafts of answers, by node. Sends and receives
    nothing."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._pending: dict[int, _SentMessage] = {}
        self._drafts: dict[tuple[int, str], _StoredDrafts] = {}

    def record_sent(self, node: int, number: int, now: float, runs: Sequence[AheadRun]) -> None:
        """Records a message that is about to be sent."""
        by_id = {one.sequence.run_id: (one, len(one.sequence.tokens)) for one in runs}
        self._pending[node] = _SentMessage(number, now, DraftClock(), by_id)

    def accept(
        self,
        node: int,
        message: AheadDraftsMessage,
        now: float,
        wire_s: float,
        names: Mapping[str, str],
        *,
        in_round: bool,
    ) -> list[AheadReply]:
        """Stores the drafts of an answer; returns the replies about live runs. `wire_s`: the last
        measured time in transit, used as an upper bound, since the answer may have waited to be
        read. `in_round`: whether a round is pending."""
        pending = self._pending.get(node)
        # The message to the node was forgotten, or replaced by a later ahead message.
        if pending is None or pending.number != message.number:
            return []
        del self._pending[node]
        if pending.is_overtaken and not in_round:
            # The round ended without this node's answer and likelihoods. The likelihoods in
            # `message` would be counted for later tokens.
            return []
        busy_s = message.busy_ms / 1000
        pending.clock.stop(busy_s, min(now - pending.sent_at, busy_s + wire_s))
        # The drafts of an overtaken message are of an old text; its likelihoods still count.
        for reply in message.runs:
            if reply.run in pending.runs and reply.need < 0 and not pending.is_overtaken:
                run, length = pending.runs[reply.run]
                self._drafts[node, reply.run] = _StoredDrafts(
                    run, length, reply, pending.clock, names
                )
        return [reply for reply in message.runs if reply.run in pending.runs]

    def overtake(self, node: int) -> None:
        """Call when a round is sent to the node: earlier drafts made ahead no longer count."""
        if node in self._pending:
            self._pending[node].is_overtaken = True
        self._drop_stored(node)

    def forget(self, node: int) -> None:
        """Call when the connection has ended: no earlier message counts."""
        self._pending.pop(node, None)
        self._drop_stored(node)

    def _drop_stored(self, node: int) -> None:
        for key in [key for key in self._drafts if key[0] == node]:
            del self._drafts[key]

    def free(self, run_id: str) -> None:
        """Call when the run has ended."""
        # An answer that is still to come may name the run.
        for pending in self._pending.values():
            pending.runs.pop(run_id, None)
        for key in [key for key in self._drafts if key[1] == run_id]:
            del self._drafts[key]

    def ahead_drafts(self, run_id: str) -> AheadDraftsByName:
        """The passes and outcomes of a run's stored drafts, by SSM."""
        drafts: AheadDraftsByName = {}
        for (_, other_id), run_drafts in self._drafts.items():
            if other_id == run_id:
                drafts |= _as_ahead_drafts(run_drafts)
        return drafts

    def ready_drafts(
        self, node: int, sequence: TokenSequence, requests: Sequence[DraftRequest]
    ) -> ReadyDrafts | None:
        """A node's drafts that serve all of a round's requests to this node; None if a draft is
        missing or if there is no request."""
        # Popped even if unused: after this round the drafts are of an old text.
        run_drafts = self._drafts.pop((node, sequence.run_id), None)
        if run_drafts is None or not requests:
            return None
        committed = sequence.tokens[run_drafts.length :]
        outcomes = (one for one in run_drafts.reply.outcomes if one.token_ids == committed)
        outcome = next(outcomes, None)
        if outcome is None:
            return None
        ready = ReadyDrafts(run_drafts.clock)
        originals = {one.index: one for one in run_drafts.run.requests}
        for reply in outcome.drafts:
            original = originals.get(reply.index)
            request = next((one for one in requests if one.index == reply.index), None)
            if (
                original is None
                or request is None
                or run_drafts.names.get(reply.ssm) != request.name
            ):
                continue
            draft = draft_of(reply, request.name, run_drafts.clock, 1)
            if fault_of(original, draft, (), originals, self._vocab_size):
                continue
            fitted = fitted_draft(draft, original, request)
            # Checked again: this round's budget may be smaller.
            if fitted and not fault_of(request, fitted[0], (), originals, self._vocab_size):
                ready.drafts[reply.index] = fitted[0]
                ready.requests.append(fitted[1])
        # All or none: a request for the missing drafts would take a full round trip.
        return ready if len(ready.drafts) == len(requests) else None


def _as_ahead_drafts(stored: _StoredDrafts) -> AheadDraftsByName:
    by_name: AheadDraftsByName = {}
    for stages in stored.reply.stages:
        name = stored.names.get(stages.ssm)
        if name is not None:
            outcomes = {
                tuple(outcome.token_ids): min(1.0, outcome.probability)
                for outcome in stored.reply.outcomes
                if any(draft.ssm == stages.ssm for draft in outcome.drafts)
            }
            by_name[name] = AheadDraft(
                outcomes,
                [*local_timings(name, stages.scoring, stored.clock)],
                [*local_timings(name, stages.drafting, stored.clock)],
            )
    return by_name
