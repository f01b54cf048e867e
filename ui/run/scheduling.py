"""A scheduler's decisions about a run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.events import Scheduled
from core.plurals import number_of
from ui.run.listed import join_names
from ui.run.view import Detail, RoundView

__all__ = ["DECISIONS", "decision_values", "granted_words", "nodes_words", "schedule_words"]

DECISIONS = {
    "more": "longer drafts",
    "fewer": "shorter drafts",
    "plain": "no drafts",
    "drafts": "drafts again",
}


def nodes_words(part: Scheduled | None, verified: int, budget: int | None) -> str:
    """Why this many of a request's tree nodes were verified. `verified`: the number of verified
    nodes, read only without `part`. `budget`: the request's own `max_tree_nodes`, or None."""
    drafted = part.num_drafted if part else verified
    if not drafted:
        is_forbidden = part is not None and part.length_limit == 0
        return "the scheduler allowed no draft" if is_forbidden else "it drafted nothing"
    if part is not None and part.num_granted < drafted:
        return f"of all requests the likeliest {part.batch_granted} of {part.batch_drafted}"
    if budget is not None and drafted >= budget:
        return f"all it drafted: its own budget (max_tree_nodes) is {budget}"
    return "all it drafted"


def granted_words(detail: Detail | None) -> str:
    """What the scheduler granted the request in the selected round, and its reason; empty without a
    scheduler, and before the round is complete."""
    event = detail.completed if detail else None
    part = event.scheduled if event else None
    if event is None or part is None:
        return ""
    subject = "request was" if part.num_live == 1 else "requests were"
    clauses = [
        f"Round {event.round + 1}, schedule {part.schedule}: {part.num_batch} of {part.num_live} "
        f"{subject} verified in this pass of the LLM"
    ]
    if part.num_granted < part.num_drafted:
        clauses.append(
            f"this one had {part.num_granted} of its {part.num_drafted} drafted nodes verified, "
            f"{nodes_words(part, 0, None)}"
        )
    elif part.num_drafted:
        nodes = "node that it drafted" if part.num_drafted == 1 else "nodes that it drafted"
        clauses.append(f"this one had all {part.num_drafted} {nodes} verified")
    else:
        clauses.append(f"this one had no node, {nodes_words(part, 0, None)}")
    return f"{'; '.join(clauses)}. Why? {part.reason}."


def schedule_words(rounds: Sequence[RoundView]) -> str:
    """How a whole run shared the LLM with other requests. Empty if no round had a scheduler."""
    parts = [round_.scheduled for round_ in rounds if round_.scheduled is not None]
    if not parts:
        return ""
    schedules = join_names(list(dict.fromkeys(part.schedule for part in parts)))
    # `num_live` counts the request itself.
    others = max(part.num_live for part in parts) - 1
    concurrency = f"beside up to {number_of(others, 'other request')}" if others else "alone"
    when = f" in {len(parts)} of {len(rounds)} rounds" if len(parts) < len(rounds) else ""
    shared = sum(part.num_batch > 1 for part in parts)
    drafted = sum(part.num_drafted for part in parts)
    granted = sum(part.num_granted for part in parts)
    passes = f"{shared} of {len(parts)} passes of the LLM were shared"
    nodes = f"{granted} of {drafted} drafted nodes verified"
    return f"schedule {schedules}{when}, {concurrency}: {passes}, {nodes}"


def decision_values(rounds: tuple[RoundView, ...]) -> dict[str, Any]:
    """The rounds in which the scheduler's decision changed: the change in words (`k`), and why
    (`t`)."""
    return {
        str(round_.number): {
            "k": DECISIONS.get(round_.scheduled.decision, round_.scheduled.decision),
            "t": round_.scheduled.reason,
        }
        for round_ in rounds
        if round_.scheduled is not None and round_.scheduled.decision
    }
