"""Encodes one round's events to rows.

If the run ends mid-round, the columns of missing events are NULL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.events import (
    Combined,
    Drafted,
    DraftRecord,
    RoundCompleted,
    Span,
    Verified,
)
from storage.codec import encode_text, to_json
from storage.tables import ROUND_TABLES, ROUNDS, Rows

__all__ = ["COMMIT_FIELDS", "LOOKUP_FIELDS", "TOKEN_FIELDS", "RoundEvent", "encode_round"]

RoundEvent = Drafted | Combined | Verified | RoundCompleted
Values = dict[str, Any]
Key = tuple[int, int]  # run, round

TOKEN_FIELDS = ("token_ids", "texts", "parents", "depths", "scores", "qs", "ranks")
LOOKUP_FIELDS = ("contexts", "shares")
"""Stored only for drafts that have them."""


def encode_round(run: int, events: Sequence[RoundEvent], model_id: Callable[[str], int]) -> Rows:
    """The rows of one round by table. `run`: the run's key; `model_id`: gives the key of a model's
    or drafter's name.

    Raises ValueError for events that do not fit together.
    """
    by_type = {type(event): event for event in events}
    rounds = {event.round for event in events}
    if len(by_type) != len(events) or len(rounds) != 1:
        pairs = [(type(event).__name__, event.round) for event in events]
        raise ValueError(
            f"events (kind, round) are {pairs}: each kind at most once, all of one round, is "
            "allowed"
        )
    key = (run, rounds.pop())
    writer = _RoundWriter(key, model_id)
    for event in events:
        writer.add(event, by_type)
    return writer.finish()


class _RoundWriter:
    def __init__(self, key: Key, model_id: Callable[[str], int]) -> None:
        self.key, self.model_id = key, model_id
        self.rows: Rows = {table.name: [] for table in ROUND_TABLES}
        self.values: Values = {"run": key[0], "round": key[1]}

    def add(self, event: RoundEvent, by_type: Mapping[type[RoundEvent], RoundEvent]) -> None:
        if isinstance(event, Drafted):
            self._head("drafted", event)
            combined = by_type.get(Combined)
            fused = isinstance(combined, Combined) and bool(combined.origins)
            self._drafts(event.drafts, fused)
        elif isinstance(event, Combined):
            self._head("combined", event)
            verified = by_type.get(Verified)
            self._tree(event, verified if isinstance(verified, Verified) else None)
        elif isinstance(event, Verified):
            self._head("verified", event)
            self._verdict(event)
        else:
            self._head("completed", event)
            self._commit(event)

    def finish(self) -> Rows:
        self.rows["rounds"].append(ROUNDS.row(self.values))
        return self.rows

    def _head(self, prefix: str, event: RoundEvent) -> None:
        self.values[f"{prefix}_seq"] = event.seq
        self.values[f"{prefix}_at_ms"] = event.at_ms

    def _drafts(self, drafts: Sequence[DraftRecord], fused: bool) -> None:
        # Here and below, values are in the order of the table's columns. For fused drafts,
        # `num_tokens` counts an SSM's own tokens, which have rank 0.
        self.rows["drafts"] = [
            (
                *self.key,
                ordinal,
                self.model_id(draft.drafter),
                draft.drafted_ahead,
                sum(rank == 0 for rank in draft.ranks) if fused else len(draft.token_ids),
                to_json(_tokens(draft)),
                to_json([_span_values(span) for span in draft.spans]),
            )
            for ordinal, draft in enumerate(drafts)
        ]

    def _tree(self, event: Combined, verified: Verified | None) -> None:
        size = len(event.token_ids)
        # NULL without a verdict: a run may end mid-round.
        outcomes = verified.outcomes if verified else (None,) * size
        probs = verified.llm_probabilities if verified else (None,) * size
        columns = (event.parents, event.depths, event.token_ids, event.texts, outcomes, probs)
        self.rows["nodes"] = [
            (*self.key, node, parent, depth, token, encode_text(text), outcome, prob)
            for node, (parent, depth, token, text, outcome, prob) in enumerate(
                zip(*columns, strict=True)
            )
        ]
        if len(event.proposals) != size:
            raise ValueError(
                f"Combined.proposals has {len(event.proposals)} entries: one for each of {size} "
                "nodes"
            )
        self.rows["proposals"] = [
            (*self.key, node, i, self.model_id(p.drafter), p.score, p.q, p.rank)
            for node, proposals in enumerate(event.proposals)
            for i, p in enumerate(proposals)
        ]
        self.values.update(
            root_token_id=event.root_token_id,
            root_text=encode_text(event.root_text),
            dropped_json=to_json(event.dropped),
            combine_rule=encode_text(event.rule),
            combine_weights_json=to_json(event.weights),
            masses_json=to_json(event.masses),
            dropped_masses_json=to_json(event.dropped_masses),
            winner=encode_text(event.winner),
            origins_json=to_json(event.origins),
            num_nodes=size,
            tree_depth=max(event.depths, default=0),
        )

    def _verdict(self, event: Verified) -> None:
        if event.outcomes and not self.rows["nodes"]:
            raise ValueError("Verified has outcomes, but the round has no Combined with nodes")
        self.rows["trials"] = [
            (*self.key, i, t.node, self.model_id(t.drafter), t.p, t.q, t.accepted)
            for i, t in enumerate(event.trials)
        ]
        self.rows["top_k"] = [
            (
                *self.key,
                i,
                top.node,
                encode_text(top.source),
                to_json(top.token_ids),
                to_json(top.texts),
                to_json(top.probabilities),
            )
            for i, top in enumerate(event.top_k)
        ]
        self.values.update(
            rule=encode_text(event.rule),
            path_json=to_json(event.path),
            own_token_id=event.own_token_id,
            own_text=encode_text(event.own_text),
            own_kind=encode_text(event.own_kind),
            own_probability=event.own_probability,
        )

    def _commit(self, event: RoundCompleted) -> None:
        # Set by the round's Verified, which comes before.
        own_kind = self.values.get("own_kind", "")
        columns = (event.token_ids, event.texts, event.text_deltas)
        self.rows["tokens"] = [
            (
                *self.key,
                i,
                event.position + i,
                token,
                encode_text(text),
                encode_text(delta),
                "accepted" if i < event.num_accepted else own_kind,
            )
            for i, (token, text, delta) in enumerate(zip(*columns, strict=True))
        ]
        self.rows["spans"] = [
            (*self.key, i, encode_text(s.lane), encode_text(s.name), s.start_ms, s.end_ms, s.share)
            for i, s in enumerate(event.spans)
        ]
        for name in COMMIT_FIELDS:
            self.values[name] = getattr(event, name)
        self.values.update(
            num_new_tokens=len(event.token_ids),
            weights_json=to_json(event.weights),
            temperatures_json=to_json(event.temperatures),
            length_reason=encode_text(event.length_reason),
            estimates_json=to_json([dataclasses.astuple(entry) for entry in event.estimates]),
            predicted_ms=event.predicted_ms,
            ahead_json=to_json([dataclasses.astuple(entry) for entry in event.ahead]),
            notes_json=to_json(event.notes),
            between_ms=event.between_ms,
            routing_json=to_json([dataclasses.astuple(entry) for entry in event.routing]),
            routing_reason=encode_text(event.routing_reason),
        )
        # NULL without a value, as in rounds that are older than these columns.
        if event.scheduled is not None:
            self.values["scheduled_json"] = to_json(dataclasses.astuple(event.scheduled))
        if event.loads:
            self.values["loads_json"] = to_json([_span_values(span) for span in event.loads])
        if event.nodes:
            self.values["nodes_json"] = to_json([dataclasses.astuple(trip) for trip in event.nodes])
        if event.traffic:
            self.values["traffic_json"] = to_json([dataclasses.astuple(t) for t in event.traffic])


COMMIT_FIELDS = (
    "position",
    "num_accepted",
    "num_cut",
    "speculation_length",
    "next_speculation_length",
    "kv_used",
    "kv_capacity",
)


def _tokens(draft: DraftRecord) -> dict[str, Any]:
    lookup_fields = [name for name in LOOKUP_FIELDS if getattr(draft, name)]
    return {name: getattr(draft, name) for name in (*TOKEN_FIELDS, *lookup_fields)}


def _span_values(span: Span) -> list[Any]:
    return list(dataclasses.astuple(span))
