"""The engine's part of drafting ahead on nodes (`pipeline=ahead`): what they were asked during the
LLM's pass, and which of their drafts the next round can use without asking.

A draft is used if its outcome came true and it has arrived when the round begins: then the round
waits for no wire. Else the round asks as ever, and the node goes on with what it has begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.drafters.ahead import AheadDraft, AheadDraftsByName
from core.drafters.base import DraftRequest
from core.nodes.answers import DraftClock, draft_of, fault_of, fitted_draft, local_timings
from core.nodes.messages import AheadDraftsMessage, AheadReply
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import TokenTree

__all__ = ["AheadExchange", "AheadRun", "ReadyDrafts"]


@dataclass(frozen=True, slots=True)
class AheadRun:
    """One run whose `tree` the LLM verifies. `requests`: the drafts wanted after one committed
    token, with the weights of their drafters by index; `verified`: the requests whose drafts were
    made ahead and are in the tree; `room`: tokens that the text has room for."""

    sequence: TokenSequence
    tree: TokenTree
    requests: tuple[DraftRequest, ...]
    verified: tuple[DraftRequest, ...]
    weights: Mapping[int, float]
    room: int
    top_k: int = 0


@dataclass(slots=True)
class ReadyDrafts:
    """A node's drafts for a round that need not be asked for: by drafter index, and the requests
    that they answer whole. `clock`: of the message that they came with."""

    clock: DraftClock
    drafts: dict[int, Draft] = field(default_factory=dict)
    requests: list[DraftRequest] = field(default_factory=list)


@dataclass(slots=True)
class _AheadRequest:
    """A message under way: when it was sent, on the transport's clock, and its runs with the
    lengths of their texts. `is_overtaken`: the node was asked for a round since."""

    number: int
    sent: float
    clock: DraftClock
    runs: dict[str, tuple[AheadRun, int]]
    is_overtaken: bool = False


@dataclass(frozen=True, slots=True)
class _StoredDrafts:
    """A run's drafts, made after a text of `length` tokens. `names`: the engine's, by the
    node's."""

    run: AheadRun
    length: int
    reply: AheadReply
    clock: DraftClock
    names: Mapping[str, str]


class AheadExchange:
    """By node. Sends and receives nothing."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._asked: dict[int, _AheadRequest] = {}
        self._stored: dict[tuple[int, str], _StoredDrafts] = {}

    def ask(self, node: int, number: int, now: float, runs: Sequence[AheadRun]) -> None:
        """A message was sent."""
        texts = {one.sequence.run_id: (one, len(one.sequence.tokens)) for one in runs}
        self._asked[node] = _AheadRequest(number, now, DraftClock(), texts)

    def take(
        self,
        node: int,
        message: AheadDraftsMessage,
        now: float,
        wire_s: float,
        names: Mapping[str, str],
        *,
        in_round: bool,
    ) -> list[AheadReply]:
        """Takes an answer; its runs if it is the one that is waited for, else none. `wire_s`: the
        last measured time on the wire: nobody looked when it came. `in_round`: a round waits."""
        asked = self._asked.get(node)
        if asked is None or asked.number != message.number:
            return []
        del self._asked[node]
        if asked.is_overtaken and not in_round:
            # The round's own report, which continues this one, may have come too late: a gap would
            # put all likelihoods before it at wrong positions.
            return []
        busy_s = message.busy_ms / 1000
        asked.clock.stop(busy_s, min(now - asked.sent, busy_s + wire_s))
        for reply in message.runs:
            if reply.run in asked.runs and reply.need < 0 and not asked.is_overtaken:
                run, length = asked.runs[reply.run]
                self._stored[node, reply.run] = _StoredDrafts(
                    run, length, reply, asked.clock, names
                )
        return [reply for reply in message.runs if reply.run in asked.runs]

    def overtake(self, node: int) -> None:
        """The node is asked for a round: of what it was asked before, its reports alone count."""
        if node in self._asked:
            self._asked[node].is_overtaken = True
        self._drop_stored(node)

    def forget(self, node: int) -> None:
        """The node is gone: nothing that it was asked before counts."""
        self._asked.pop(node, None)
        self._drop_stored(node)

    def _drop_stored(self, node: int) -> None:
        for key in [key for key in self._stored if key[0] == node]:
            del self._stored[key]

    def free(self, run: str) -> None:
        """The run has ended; an answer that is under way may still name it."""
        for asked in self._asked.values():
            asked.runs.pop(run, None)
        for key in [key for key in self._stored if key[1] == run]:
            del self._stored[key]

    def ahead_drafts(self, run: str) -> AheadDraftsByName:
        """What the nodes have made for a run, by SSM: passes and outcomes."""
        found: AheadDraftsByName = {}
        for (_, name), made in self._stored.items():
            if name == run:
                found |= _as_ahead_drafts(made)
        return found

    def ready_drafts(
        self, node: int, sequence: TokenSequence, requests: Sequence[DraftRequest]
    ) -> ReadyDrafts | None:
        """A node's drafts that answer all of a round's requests to it; None if one is missing."""
        made = self._stored.pop((node, sequence.run_id), None)
        if made is None or not requests:
            return None
        committed = sequence.tokens[made.length :]
        of_outcome = (one for one in made.reply.outcomes if one.token_ids == committed)
        outcome = next(of_outcome, None)
        if outcome is None:
            return None
        ready = ReadyDrafts(made.clock)
        made_for = {one.index: one for one in made.run.requests}
        for reply in outcome.drafts:
            asked = made_for.get(reply.index)
            request = next((one for one in requests if one.index == reply.index), None)
            if asked is None or request is None or made.names.get(reply.ssm) != request.name:
                continue
            draft = draft_of(reply, request.name, made.clock, 1)
            if fault_of(asked, draft, (), made_for, self._vocab_size):
                continue
            fitted = fitted_draft(draft, asked, request)
            # Within the budget of this round too, whatever the node made of its shape.
            if fitted and not fault_of(request, fitted[0], (), made_for, self._vocab_size):
                ready.drafts[reply.index] = fitted[0]
                ready.requests.append(fitted[1])
        return ready if len(ready.drafts) == len(requests) else None


def _as_ahead_drafts(made: _StoredDrafts) -> AheadDraftsByName:
    by_name: AheadDraftsByName = {}
    for one in made.reply.stages:
        name = made.names.get(one.ssm)
        if name is not None:
            outcomes = {
                tuple(each.token_ids): min(1.0, each.probability)
                for each in made.reply.outcomes
                if any(draft.ssm == one.ssm for draft in each.drafts)
            }
            scoring = [*local_timings(name, one.scoring, made.clock)]
            by_name[name] = AheadDraft(
                outcomes, scoring, [*local_timings(name, one.drafting, made.clock)]
            )
    return by_name
