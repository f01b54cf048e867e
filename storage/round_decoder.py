"""Decodes rows to the events of rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from core.events import (
    Ahead,
    Combined,
    Drafted,
    DraftRecord,
    Estimate,
    NodeTrip,
    ProposalRecord,
    RankTraffic,
    RoundCompleted,
    RoutedDrafter,
    Scheduled,
    Span,
    TopK,
    Trial,
    Verified,
)
from storage.codec import Fields, decode_number, decode_text, from_json
from storage.round_encoder import COMMIT_FIELDS, LOOKUP_FIELDS, TOKEN_FIELDS, RoundEvent

__all__ = ["decode_rounds"]


@dataclass(frozen=True, slots=True)
class _RoundRows:
    """One round's rows by table."""

    run_id: str
    values: Fields
    rows: Mapping[str, Sequence[Fields]]
    model_name: Callable[[int], str]

    def head(self, prefix: str) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "seq": self.values[f"{prefix}_seq"],
            "at_ms": decode_number(self.values[f"{prefix}_at_ms"]),
            "round": self.values["round"],
        }


def decode_rounds(
    run_id: str, rows: Mapping[str, Iterable[Fields]], model_name: Callable[[int], str]
) -> list[RoundEvent]:
    """The inverse of `encode_round`, for all rounds of a run, in the order of `seq`.

    `rows`: the run's rows by table; the rows of one round are in the order of the table's keys.
    """
    by_round: dict[int, dict[str, list[Fields]]] = defaultdict(lambda: defaultdict(list))
    for name, table_rows in rows.items():
        for row in table_rows:
            by_round[row["round"]][name].append(row)
    events: list[RoundEvent] = []
    for tables in by_round.values():
        events += _events(_RoundRows(run_id, tables["rounds"][0], tables, model_name))
    return sorted(events, key=attrgetter("seq"))


def _events(round_rows: _RoundRows) -> Iterator[RoundEvent]:
    if round_rows.values["drafted_seq"] is not None:
        yield _decode_drafted(round_rows)
    if round_rows.values["combined_seq"] is not None:
        yield _decode_combined(round_rows)
    if round_rows.values["verified_seq"] is not None:
        yield _decode_verified(round_rows)
    if round_rows.values["completed_seq"] is not None:
        yield _decode_completed(round_rows)


def _decode_drafted(round_rows: _RoundRows) -> Drafted:
    drafts = []
    for row in round_rows.rows["drafts"]:
        tokens = from_json(row["tokens_json"])
        drafts.append(
            DraftRecord(
                drafter=round_rows.model_name(row["model"]),
                drafted_ahead=bool(row["drafted_ahead"]),
                spans=tuple(Span(*values) for values in from_json(row["spans_json"])),
                **{name: tuple(tokens[name]) for name in TOKEN_FIELDS},
                **{name: tuple(tokens.get(name, ())) for name in LOOKUP_FIELDS},
            )
        )
    return Drafted(**round_rows.head("drafted"), drafts=tuple(drafts))


def _decode_combined(round_rows: _RoundRows) -> Combined:
    nodes, values = round_rows.rows["nodes"], round_rows.values
    proposals: list[list[ProposalRecord]] = [[] for _ in nodes]
    for row in round_rows.rows["proposals"]:
        score, q = decode_number(row["score"]), decode_number(row["q"])
        name = round_rows.model_name(row["model"])
        proposals[row["node"]].append(ProposalRecord(name, score, q, row["rank"]))
    return Combined(
        **round_rows.head("combined"),
        token_ids=_column(nodes, "token_id"),
        texts=tuple(decode_text(row["text"]) for row in nodes),
        parents=_column(nodes, "parent"),
        depths=_column(nodes, "depth"),
        proposals=tuple(map(tuple, proposals)),
        dropped=tuple((name, i) for name, i in from_json(values["dropped_json"])),
        root_token_id=values["root_token_id"],
        root_text=decode_text(values["root_text"]),
        # A round that is older than the columns gets the event's defaults.
        **(_vote_fields(values) if values["combine_rule"] is not None else {}),
    )


def _vote_fields(values: Fields) -> dict[str, Any]:
    return {
        "rule": decode_text(values["combine_rule"]),
        "weights": from_json(values["combine_weights_json"]),
        "masses": tuple(from_json(values["masses_json"])),
        "dropped_masses": tuple(from_json(values["dropped_masses_json"])),
        "winner": decode_text(values["winner"]),
        "origins": tuple(from_json(values["origins_json"] or "[]")),
    }


def _decode_verified(round_rows: _RoundRows) -> Verified:
    nodes, values = round_rows.rows["nodes"], round_rows.values
    return Verified(
        **round_rows.head("verified"),
        rule=decode_text(values["rule"]),
        path=tuple(from_json(values["path_json"])),
        outcomes=_column(nodes, "outcome"),
        own_token_id=values["own_token_id"],
        own_text=decode_text(values["own_text"]),
        own_kind=decode_text(values["own_kind"]),
        own_probability=decode_number(values["own_probability"]),
        llm_probabilities=tuple(decode_number(row["llm_probability"]) for row in nodes),
        trials=tuple(
            Trial(
                row["node"],
                round_rows.model_name(row["model"]),
                decode_number(row["p"]),
                decode_number(row["q"]),
                bool(row["accepted"]),
            )
            for row in round_rows.rows["trials"]
        ),
        top_k=tuple(_top(row) for row in round_rows.rows["top_k"]),
    )


def _top(row: Fields) -> TopK:
    return TopK(
        row["node"],
        decode_text(row["source"]),
        tuple(from_json(row["token_ids_json"])),
        tuple(from_json(row["texts_json"])),
        tuple(from_json(row["probabilities_json"])),
    )


def _decode_completed(round_rows: _RoundRows) -> RoundCompleted:
    tokens, values = round_rows.rows["tokens"], round_rows.values
    scheduled = values["scheduled_json"]
    return RoundCompleted(
        **round_rows.head("completed"),
        token_ids=_column(tokens, "token_id"),
        texts=tuple(decode_text(row["text"]) for row in tokens),
        text_deltas=tuple(decode_text(row["text_delta"]) for row in tokens),
        weights=from_json(values["weights_json"]),
        temperatures=from_json(values["temperatures_json"]),
        spans=tuple(
            Span(
                decode_text(row["lane"]),
                decode_text(row["name"]),
                decode_number(row["start_ms"]),
                decode_number(row["end_ms"]),
                row["share"],
            )
            for row in round_rows.rows["spans"]
        ),
        **{name: values[name] for name in COMMIT_FIELDS},
        **(_length_fields(values) if values["length_reason"] is not None else {}),
        # A record is stored as the list of its fields. In older logs the list may be shorter: a new
        # field comes last and has a default.
        scheduled=None if scheduled is None else Scheduled(*from_json(scheduled)),
        loads=tuple(Span(*entry) for entry in from_json(values["loads_json"] or "[]")),
        nodes=tuple(NodeTrip(*entry) for entry in from_json(values["nodes_json"] or "[]")),
        traffic=tuple(RankTraffic(*entry) for entry in from_json(values["traffic_json"] or "[]")),
    )


def _length_fields(values: Fields) -> dict[str, Any]:
    """Fields that m005_minions and later migrations added, for a round that has them."""
    return {
        "length_reason": decode_text(values["length_reason"]),
        "estimates": tuple(Estimate(*entry) for entry in from_json(values["estimates_json"])),
        "predicted_ms": decode_number(values["predicted_ms"]),
        "ahead": tuple(Ahead(*entry) for entry in from_json(values["ahead_json"])),
        "notes": tuple(from_json(values["notes_json"])),
        "between_ms": decode_number(values["between_ms"]),
        "routing": tuple(RoutedDrafter(*entry) for entry in from_json(values["routing_json"])),
        "routing_reason": decode_text(values["routing_reason"]),
    }


def _column(rows: Sequence[Fields], name: str) -> tuple[Any, ...]:
    return tuple(row[name] for row in rows)
