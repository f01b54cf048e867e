"""A run's finished rounds as a table with one row for each. Rounds are numbered from 1."""

from __future__ import annotations

import csv
import dataclasses
import io
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunStarted,
    Scheduled,
    Verified,
)
from storage.export_json import is_thinned

__all__ = ["FinishedRound", "csv_cell", "finished_rounds", "fused_drafters", "rounds_csv"]

FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
KEPT_CONTROLS = "\t\n"
# Unicode's bidirectional embeddings, overrides and isolates can reverse the text after them.
BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# Unicode categories: controls, lone surrogates, separators of lines and of paragraphs.
ESCAPED = ("Cc", "Cs", "Zl", "Zp")
FIXED_LANES = ("combine", "llm", "verify", "commit")
STAGES = ("draft", *FIXED_LANES, "prefill")
# One column for each field of Scheduled; two columns get longer names.
SCHEDULED = tuple(field.name for field in dataclasses.fields(Scheduled))
SCHEDULED_AS = {"decision": "schedule_decision", "reason": "schedule_reason"}


def rounds_csv(events: Sequence[Event]) -> str:
    """A header and one row for each finished round. For a thinned run, the `tree` column has
    `accepted paths only`, and the columns that need complete trees are empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front. These characters
    are written as escapes: controls other than tab and line feed, separators of lines and
    paragraphs, BIDI_CONTROLS, lone surrogates.
    """
    start = events[0] if events else None
    drafters = start.drafters if isinstance(start, RunStarted) else ()
    thinned = is_thinned(events)
    out = io.StringIO()
    writer = csv.writer(out)
    rows = [_row(one, drafters, thinned) for one in finished_rounds(events)]
    # Column names are escaped too: they contain drafters' names, which may be any text.
    writer.writerow([csv_cell(head) for head in _row(_empty_round(), drafters, thinned)])
    for row in rows:
        writer.writerow([csv_cell(value) for value in row.values()])
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """The events of one finished round. `begin_ms`: the end of the previous round, 0 for the first
    round."""

    drafted: Drafted | None
    combined: Combined | None
    verified: Verified | None
    completed: RoundCompleted
    begin_ms: float


def _empty_round() -> FinishedRound:
    completed = RoundCompleted("", 0, 0.0, 0, 0, (), (), (), 0, 0, 0, 0, {}, {}, (), 0, 0)
    return FinishedRound(None, None, None, completed, 0.0)


def finished_rounds(events: Sequence[Event]) -> Iterator[FinishedRound]:
    """The rounds that have a RoundCompleted, in order."""
    drafted: Drafted | None = None
    combined: Combined | None = None
    verified: Verified | None = None
    begin_ms = 0.0
    for event in events:
        if isinstance(event, Drafted):
            drafted = event
        elif isinstance(event, Combined):
            combined = event
        elif isinstance(event, Verified):
            verified = event
        elif isinstance(event, RoundCompleted):
            yield FinishedRound(drafted, combined, verified, event, begin_ms)
            begin_ms, drafted, combined, verified = event.at_ms, None, None, None


def _row(one: FinishedRound, drafters: tuple[str, ...], thinned: bool) -> dict[str, Any]:
    completed, tree = one.completed, one.combined
    values: dict[str, Any] = {
        "round": completed.round + 1,
        "start_ms": one.begin_ms,
        "end_ms": completed.at_ms,
        "position": completed.position,
        "num_tokens": len(completed.token_ids),
        "text": "".join(completed.text_deltas),
        "token_ids": " ".join(map(str, completed.token_ids)),
        "num_accepted": completed.num_accepted,
        "num_cut": completed.num_cut,
        "own_kind": one.verified.own_kind if one.verified else "",
        "speculation_length": completed.speculation_length,
        "next_speculation_length": completed.next_speculation_length,
        "length_reason": completed.length_reason,
        "predicted_ms": completed.predicted_ms or "",
        "between_ms": completed.between_ms,
        "routed": " ".join(
            o.drafter for o in completed.routing if o.role in ("routed", "explored")
        ),
        "explored": " ".join(o.drafter for o in completed.routing if o.role == "explored"),
        "routing_reason": completed.routing_reason,
        "tree": "accepted paths only" if thinned else "whole",
        "num_nodes": "" if thinned or not tree else len(tree.token_ids),
        "drafted_depth": "" if thinned or not tree else max(tree.depths, default=0),
        "rule": tree.rule if tree else "",
        "winner": tree.winner if tree else "",
        "fused_from": " ".join(fused_drafters(one) or ()),
        "verify_rule": one.verified.rule if one.verified else "",
        "kv_used": completed.kv_used,
        "ahead_hits": sum(entry.hit for entry in completed.ahead),
        "ahead_misses": sum(not entry.hit for entry in completed.ahead),
        "saved_ms": sum(entry.saved_ms for entry in completed.ahead),
        "wasted_ms": sum(entry.wasted_ms for entry in completed.ahead),
        "notes": " ".join(completed.notes),
    }
    return {
        **values,
        **_schedule(completed),
        **_stages(completed),
        **_by_drafter(one, drafters, thinned),
    }


def _schedule(completed: RoundCompleted) -> dict[str, Any]:
    part = completed.scheduled
    values = dict.fromkeys(SCHEDULED, "") if part is None else dataclasses.asdict(part)
    columns = {SCHEDULED_AS.get(name, name): values[name] for name in SCHEDULED}
    return {head: "" if value is None else value for head, value in columns.items()}


def fused_drafters(one: FinishedRound) -> list[str] | None:
    """The drafters of the accepted tokens, in order; None for a round without fused drafts (see
    `DraftKind` in core.config.mechanisms)."""
    tree, verdict = one.combined, one.verified
    if tree is None or verdict is None or not tree.origins:
        return None
    return [tree.origins[node] for node in verdict.path[: one.completed.num_accepted]]


def _stages(completed: RoundCompleted) -> dict[str, float]:
    """Milliseconds by stage; `draft` is summed over drafters. Each span counts with its `share`."""
    sums = dict.fromkeys(STAGES, 0.0)
    for span in completed.spans:
        stage = span.lane if span.lane in FIXED_LANES else "draft"
        sums["prefill" if span.name == "prefill" else stage] += span.ms
    return {f"{name}_ms": value for name, value in sums.items()}


def _by_drafter(one: FinishedRound, drafters: tuple[str, ...], thinned: bool) -> dict[str, Any]:
    """The columns of each drafter."""
    # In a fused draft only a drafter's own tokens count, which have rank 0.
    drafted, proposed, accepted, spent_ms = (Counter[str]() for _ in range(4))
    fused = one.combined is not None and bool(one.combined.origins)
    for draft in one.drafted.drafts if one.drafted else ():
        drafted[draft.drafter] += sum(not fused or rank == 0 for rank in draft.ranks)
    emitted = one.verified.path[: one.completed.num_accepted] if one.verified else ()
    for node, proposals in enumerate(one.combined.proposals if one.combined else ()):
        for name in {one.drafter for one in proposals if not fused or one.rank == 0}:
            proposed[name] += 1
            accepted[name] += node in emitted
    for span in one.completed.spans:
        spent_ms[span.lane] += span.ms  # type: ignore[assignment]
    scores = {routed.drafter: routed.score for routed in one.completed.routing}
    values: dict[str, Any] = {}
    for name in drafters:
        values[f"drafted: {name}"] = "" if thinned else drafted[name]
        values[f"proposed: {name}"] = "" if thinned else proposed[name]
        values[f"accepted: {name}"] = accepted[name]
        values[f"weight after: {name}"] = one.completed.weights.get(name, "")
        values[f"routing score after: {name}"] = scores.get(name, "")
        values[f"ms: {name}"] = spent_ms[name]
    return values


def csv_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula, escaped as `rounds_csv` says."""
    if not isinstance(value, str):
        return value
    text = "".join(character if _harmless(character) else _escape(character) for character in value)
    # Some spreadsheets take a text for a formula even with blanks in front.
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text


def _harmless(character: str) -> bool:
    if character in KEPT_CONTROLS:
        return True
    # Joiners and variation selectors are kept: they combine several characters into one symbol.
    return character not in BIDI_CONTROLS and unicodedata.category(character) not in ESCAPED


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
