"""View: the page's state of a run, made from events by `reduce_all`.

A View has at most the two latest rounds in full, since trees and top-k lists are most of a run's
data."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.drafters.drafter_weights import SLOWEST_MEAN
from core.events import (
    Ahead,
    Combined,
    Drafted,
    Estimate,
    Event,
    NodeTrip,
    RankTraffic,
    RoundCompleted,
    RoutedDrafter,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Scheduled,
    Span,
    Verified,
)
from core.metrics import StatsFold, audition_ms
from ui.run.letters import letters_of, slots_of
from ui.run.times import RoundTime, add_spans, time_of

__all__ = [
    "STAGES",
    "Detail",
    "RoundEvent",
    "RoundView",
    "TokenView",
    "View",
    "detail_of",
    "reduce_all",
]

# A tree of at most this size can be read at a glance.
READABLE_DEPTH = 6
READABLE_NODES = 24
STAGES = ("draft", "combine", "verify", "commit")
RoundEvent = Drafted | Combined | Verified | RoundCompleted
"""The events of a round, one at the end of each of STAGES."""


@dataclass(frozen=True, slots=True)
class TokenView:
    """One new token: `text` is its contribution to the output, `token` its text decoded alone.
    `kind` is `accepted`, `recovered`, `bonus` or `plain`. `probability`: the LLM's probability of
    the token. `scores`: for each drafter of the token, its index in the run and its score."""

    token_id: int
    text: str
    token: str
    round: int
    kind: str
    probability: float
    scores: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RoundView:
    """Summary of one round: the numbers of `accepted` drafted tokens and of all `emitted` tokens,
    the `depth` of its tree and its number of `nodes`, and the speculation `length`.

    `spans`: the times of its stages; `loads`: when an offloaded LLM's layers were read. `trips`:
    the round trips to remote drafters; `traffic`: data exchanged by the ranks of a divided LLM.

    `weights`: the drafter weights that the combine rule used, empty if it uses none. `winner`: the
    drafter that won a vote; `share`: the accepted share of its sequence. `votes`: the number of
    earlier votes; `mean_share`: the running mean of the earlier votes' shares.

    Milliseconds of the run: `begin_ms`, the end of the previous round's last stage, 0 in the first
    round; `at_ms`, the end of this round. `predicted_ms`: the length policy's prediction of
    `time.ms`, 0 without one.

    `routing`: each SSM's role, if a rule chose the SSMs that draft. `asking_ms`: the time in which
    SSMs were scored for routing. `next_length`, `length_reason`, `estimates`: the length policy's
    choice after the round.

    `tally`: each drafter that drafted, with its numbers of accepted and of drafted tokens.
    `struck`: the number of rejected nodes. `split`: see `_is_split`. `stopped`: whether the round
    ended in a rejection."""

    number: int
    accepted: int
    emitted: int
    depth: int
    nodes: int
    length: int
    spans: tuple[Span, ...]
    weights: dict[str, float]
    loads: tuple[Span, ...] = ()
    trips: tuple[NodeTrip, ...] = ()
    traffic: tuple[RankTraffic, ...] = ()
    winner: str = ""
    share: float = 0.0
    votes: int = 0
    mean_share: float = 0.0
    begin_ms: float = 0.0
    time: RoundTime = RoundTime()
    predicted_ms: float = 0.0
    ahead: tuple[Ahead, ...] = ()
    scheduled: Scheduled | None = None
    notes: tuple[str, ...] = ()
    routing: tuple[RoutedDrafter, ...] = ()
    routing_reason: str = ""
    asking_ms: float = 0.0
    at_ms: float = 0.0
    next_length: int = 0
    length_reason: str = ""
    estimates: tuple[Estimate, ...] = ()
    draft_depths: tuple[tuple[str, int], ...] = ()
    tally: tuple[tuple[str, int, int], ...] = ()
    struck: int = 0
    split: bool = False
    stopped: bool = False

    @property
    def story(self) -> int:
        """How much the round's tree shows, in points from 1 to 6; 0 without a tree."""
        if not self.nodes:
            return 0
        readable = self.depth <= READABLE_DEPTH and self.nodes <= READABLE_NODES
        return 1 + sum((readable, self.accepted > 0, self.struck > 0, self.split, self.stopped))


@dataclass(frozen=True, slots=True)
class Detail:
    """The events of one round so far. `stage`: the stage of the last event, `draft` before the
    first event."""

    round: int
    drafted: Drafted | None = None
    combined: Combined | None = None
    verified: Verified | None = None
    completed: RoundCompleted | None = None

    @property
    def stage(self) -> str:
        events = (self.drafted, self.combined, self.verified, self.completed)
        past_stages = [name for name, event in zip(STAGES, events, strict=True) if event]
        return past_stages[-1] if past_stages else STAGES[0]

    @property
    def node_of_token(self) -> dict[int, int]:
        """Index of an accepted token -> its node. Indices are negative; -1 is the round's last
        token."""
        if self.verified is None or self.completed is None:
            return {}
        # The text may end within the accepted path.
        path = self.verified.path[: self.completed.num_accepted]
        return dict(enumerate(path, -len(self.completed.token_ids)))


@dataclass(frozen=True, slots=True)
class View:
    """A run as far as its events are known. `state`: empty, `running`, `completed`, `cancelled`,
    `failed`.

    `share`: milliseconds per stage, see `add_spans`. `current`: the latest round, perhaps
    unfinished; `last`: the latest finished round. `tail`: the text of an incomplete character at
    the end. `seq`: the last event's number."""

    started: RunStarted | None = None
    state: str = ""
    seq: int = -1
    tokens: tuple[TokenView, ...] = ()
    rounds: tuple[RoundView, ...] = ()
    current: Detail | None = None
    last: Detail | None = None
    tail: str = ""
    stats: RunStats = RunStats()
    share: tuple[tuple[str, float], ...] = ()
    finish_reason: str = ""
    error: str = ""
    fold: StatsFold = field(default_factory=StatsFold, compare=False, repr=False)

    @property
    def run_id(self) -> str:
        return self.started.run_id if self.started else ""

    @property
    def drafters(self) -> tuple[str, ...]:
        return self.started.drafters if self.started else ()

    @property
    def config(self) -> Mapping[str, Any]:
        """The request's fields as the run resolved them; empty before its start."""
        return self.started.config if self.started else {}

    @property
    def speculation(self) -> Mapping[str, Any]:
        """The fields of the run's SpeculationConfig."""
        fields: Mapping[str, Any] = self.config.get("speculation", {})
        return fields

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The fields of the run's SamplingParams."""
        fields: Mapping[str, Any] = self.config.get("sampling", {})
        return fields

    @property
    def slots(self) -> dict[str, int]:
        """The slot of each drafter, in the run's order; see `slots_of`."""
        return slots_of(self.drafters, self.started.models if self.started else ())

    @property
    def letters(self) -> dict[str, str]:
        """The letter of each drafter, in the run's order."""
        return letters_of(self.slots)

    @property
    def scoreboard(self) -> dict[str, tuple[int, int]]:
        """For each drafter its numbers of accepted and of drafted tokens in the run."""
        sums: dict[str, tuple[int, int]] = {}
        for name, accepted, drafted in (one for round_ in self.rounds for one in round_.tally):
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + accepted, before[1] + drafted
        return sums

    @property
    def text(self) -> str:
        """The text written so far, without the prompt."""
        return "".join(token.text for token in self.tokens) + self.tail

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token.token_id for token in self.tokens)


def reduce_all(events: Iterable[Event], view: View | None = None) -> View:
    """The View after `events`, starting from `view`, by default from an empty View. `view` is not
    changed."""
    # Tuples that grow with a run are copied once per call: a page may fold hundreds of events.
    run = _ViewBuilder(view or View())
    for event in events:
        run.take(event)
    return run.view()


def detail_of(events: Iterable[Event], number: int) -> Detail | None:
    """The Detail of round `number`; None if `events` has no event of this round."""
    detail = Detail(number)
    for event in events:
        if isinstance(event, RoundEvent) and event.round == number:
            detail = detail_with(detail, event)
    return None if detail == Detail(number) else detail


def detail_with(detail: Detail, event: RoundEvent) -> Detail:
    """`detail` with another event of its round."""
    if isinstance(event, Drafted):
        return replace(detail, drafted=event)
    if isinstance(event, Combined):
        return replace(detail, combined=event)
    if isinstance(event, Verified):
        return replace(detail, verified=event)
    return replace(detail, completed=event)


class _ViewBuilder:
    def __init__(self, view: View) -> None:
        self._view = view
        self._fold = copy.deepcopy(view.fold)  # a View is never changed
        self._tokens, self._rounds = list(view.tokens), list(view.rounds)
        self._current, self._last, self._share = view.current, view.last, view.share
        self._round_end_ms: float | None = None
        self._fields: dict[str, Any] = {}

    def take(self, event: Event) -> None:
        self._fold.observe(event)
        self._fields["seq"] = event.seq
        if isinstance(event, RunStarted):
            self._view = replace(self._view, started=event, state="running")
        elif isinstance(event, (Drafted, Combined, Verified)):
            self._current = detail_with(self._detail_so_far(event.round), event)
        elif isinstance(event, RoundCompleted):
            self._after_round(event)
        else:
            self._fields |= _end_fields(event)

    def view(self) -> View:
        fields = self._fields
        if self._round_end_ms is not None:
            # The figures in the run's last event override those computed here.
            fields = {"stats": self._fold.stats(self._round_end_ms)} | fields
        return replace(
            self._view,
            current=self._current,
            last=self._last,
            rounds=tuple(self._rounds),
            tokens=tuple(self._tokens),
            share=self._share,
            fold=self._fold,
            **fields,
        )

    def _detail_so_far(self, number: int) -> Detail:
        current = self._current
        return current if current and current.round == number else Detail(number)

    def _after_round(self, event: RoundCompleted) -> None:
        self._current = self._last = detail = detail_with(self._detail_so_far(event.round), event)
        before = self._rounds[-1] if self._rounds else None
        tree = detail.combined
        self._rounds.append(
            RoundView(
                number=event.round,
                accepted=event.num_accepted,
                emitted=len(event.token_ids),
                depth=max(tree.depths, default=0) if tree else 0,
                nodes=len(tree.token_ids) if tree else 0,
                length=event.speculation_length,
                spans=event.spans,
                loads=event.loads,
                trips=event.nodes,
                traffic=event.traffic,
                weights=tree.weights if tree else {},
                begin_ms=max((s.end_ms for s in before.spans), default=0.0) if before else 0.0,
                time=time_of(event),
                predicted_ms=event.predicted_ms,
                ahead=event.ahead,
                scheduled=event.scheduled,
                notes=event.notes,
                routing=event.routing,
                routing_reason=event.routing_reason,
                asking_ms=audition_ms(event),
                at_ms=event.at_ms,
                next_length=event.next_speculation_length,
                length_reason=event.length_reason,
                estimates=event.estimates,
                draft_depths=_draft_depths(detail),
                tally=_tally(detail, event),
                struck=detail.verified.outcomes.count("rejected") if detail.verified else 0,
                split=_is_split(detail),
                stopped=detail.verified is not None and detail.verified.own_kind == "recovered",
                **_vote(before, detail),
            )
        )
        self._tokens += _new_tokens(self._view.drafters, detail, event)
        self._share = add_spans(self._share, event)
        self._round_end_ms = event.at_ms


def _draft_depths(detail: Detail) -> tuple[tuple[str, int], ...]:
    drafts = detail.drafted.drafts if detail.drafted else ()
    return tuple((one.drafter, max(one.depths)) for one in drafts if one.depths)


def _tally(detail: Detail, event: RoundCompleted) -> tuple[tuple[str, int, int], ...]:
    tree, verdict, drafted = detail.combined, detail.verified, detail.drafted
    if tree is None or verdict is None or drafted is None:
        return ()
    # The text may end within the accepted path: only committed nodes count.
    accepted = Counter(
        name for node in verdict.path[: event.num_accepted] for name in tree.drafters_of(node)
    )
    counts = {draft.drafter: len(draft.token_ids) for draft in drafted.drafts}
    # In a fused draft a node counts for the drafter whose token the fusion took.
    if tree.origins:
        owned = Counter(tree.origins)
        counts = {name: owned[name] for name in counts}
    return tuple((name, accepted[name], count) for name, count in counts.items() if count)


def _is_split(detail: Detail) -> bool:
    """Whether two drafters' first choices differ after the root or an accepted node. After a vote:
    whether drafted tokens were dropped."""
    tree, verdict = detail.combined, detail.verified
    if tree is None or verdict is None:
        return False
    if tree.winner:
        return bool(tree.dropped)
    firsts: dict[int, dict[str, int]] = {node: {} for node in (-1, *verdict.path)}
    for node, parent in enumerate(tree.parents):
        for proposal in tree.proposals[node] if parent in firsts else ():
            if proposal.rank == 0:
                firsts[parent].setdefault(proposal.drafter, node)
    return any(len(set(nodes.values())) > 1 for nodes in firsts.values())


def _vote(last: RoundView | None, detail: Detail) -> dict[str, Any]:
    votes, mean = 0, 0.0
    if last is not None:
        # A vote is compared with the mean of earlier votes: the last round's share is added here.
        votes, mean = last.votes, last.mean_share
        if last.winner:
            votes += 1
            # A running mean; from SLOWEST_MEAN votes on, an exponential mean.
            mean += (last.share - mean) / min(votes, SLOWEST_MEAN)
    vote: dict[str, Any] = {"votes": votes, "mean_share": mean}
    tree, verdict = detail.combined, detail.verified
    if tree and verdict and tree.winner and tree.token_ids:
        vote |= {"winner": tree.winner, "share": len(verdict.path) / len(tree.token_ids)}
    return vote


def _new_tokens(
    drafters: tuple[str, ...], detail: Detail, event: RoundCompleted
) -> Iterable[TokenView]:
    tree, verdict = detail.combined, detail.verified
    index = {name: i for i, name in enumerate(drafters)}
    for i, token_id in enumerate(event.token_ids):
        kind, probability = "plain", 0.0
        scores: tuple[tuple[int, float], ...] = ()
        if verdict and tree and i < event.num_accepted:
            node = verdict.path[i]
            kind, probability = "accepted", verdict.llm_probabilities[node]
            proposers = tree.drafters_of(node)
            # Reversed, so that of two proposals by one drafter the first stays in the dict.
            offered = (p for p in reversed(tree.proposals[node]) if p.drafter in proposers)
            firsts = {index.get(p.drafter, -1): p.score for p in offered}
            scores = tuple(sorted(firsts.items()))
        elif verdict:
            kind, probability = verdict.own_kind, verdict.own_probability
        yield TokenView(
            token_id, event.text_deltas[i], event.texts[i], event.round, kind, probability, scores
        )


def _end_fields(event: RunCompleted | RunCancelled | RunFailed) -> dict[str, Any]:
    fields: dict[str, Any] = {"tail": event.text_tail, "stats": event.stats}
    if isinstance(event, RunCompleted):
        return fields | {"state": "completed", "finish_reason": event.finish_reason}
    if isinstance(event, RunCancelled):
        return fields | {"state": "cancelled", "finish_reason": "cancelled"}
    return fields | {"state": "failed", "error": f"{event.error}: {event.message}"}
