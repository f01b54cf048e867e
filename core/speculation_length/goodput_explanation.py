"""Explains from recorded numbers why a draft under `goodput` is as long as it is.

A reason is left out if it disagrees with the numbers: an audition (see `Goodput.observe_audition`)
may have replaced the plan.
"""

from __future__ import annotations

import re
from itertools import pairwise

from core.events import DraftRecord
from core.plurals import number_of
from core.speculation_length.goodput import DEEPER
from core.speculation_length.history import LengthHistory, deepest_draft, round_name

__all__ = ["explain"]

# Patterns of the phrases that Goodput._reason writes.
TOKEN_MS = re.compile(r"a token ([\d.]+) ms")
PLAIN = re.compile(r"no draft beats plain decoding at (\d+) tokens a second")
STOPPED = re.compile(r"; ([^;]+ stops drafting: it is [\d.]+ tokens behind)")


def explain(history: LengthHistory) -> str:
    """Why the round's deepest draft ended where it did, and why drafts could not be longer."""
    draft = deepest_draft(history.drafts)
    if draft is None:
        words = "no SSM drafted"
    else:
        words = f"{history.draft_words(draft)}{_end_words(history, draft)}"
    return f"{words}. At most {history.since()}{_limit_words(history)}."


def _end_words(history: LengthHistory, draft: DraftRecord) -> str:
    depth = max(draft.depths)
    if depth >= history.now.length:
        return ", as deep as allowed"
    recorded = history.reason(len(history.rounds) - 1)
    token_ms = TOKEN_MS.search(recorded)
    estimates = {one.length: one for one in history.rounds[-2].estimates} if recorded else {}
    if token_ms is None or not {1, depth, depth + 1} <= {*estimates}:
        return ""
    # At length 1 and acceptance rate r, the estimates expect 1 + r tokens.
    rate = estimates[1].tokens - 1
    chance = rate * min(1.0, _chance(draft, depth))
    worth, cost = chance * float(token_ms[1]), estimates[depth + 1].ms - estimates[depth].ms
    # The recorded plan would have drafted deeper: an audition may have replaced it.
    if worth >= cost:
        return ""
    return (
        f": token {depth + 1} would be right with a chance of {100 * chance:.1f} %, worth "
        f"{worth:.2f} ms at {token_ms[1]} ms a token, and would cost {cost:.2f} ms"
    )


def _chance(draft: DraftRecord, depth: int) -> float:
    """P(some node of this depth is accepted) by the draft's scores: a sum, which may exceed 1."""
    chances: list[float] = []
    for parent, score in zip(draft.parents, draft.scores, strict=True):
        chances.append(score * (chances[parent] if parent >= 0 else 1.0))
    return sum(chance for chance, d in zip(chances, draft.depths, strict=True) if d == depth)


def _limit_words(history: LengthHistory) -> str:
    """The cause of the limit on the drafts' length; empty if no record shows it."""
    if history.bound:
        return f": {history.bound}"
    index = history.changed_at
    if not index:
        return ""
    recorded = history.reason(index)
    if plain := PLAIN.search(recorded):
        stopped = STOPPED.search(recorded)
        why = f"; {stopped[1]}" if stopped else ""
        return (
            f": no draft beats plain decoding at {number_of(int(plain[1]), 'token')} a second{why}"
        )
    before, after = history.rounds[index - 1].length, history.rounds[index].length
    if after > before:
        return _rise_words(history, index)
    if recorded and before - after == 1:
        return (
            f": {DEEPER} more than the deepest recent tree, whose depth counts one less with each "
            "new plan"
        )
    return ""


def _rise_words(history: LengthHistory, index: int) -> str:
    """Names the deepest tree since the length's previous change; empty if this tree does not
    explain the rise."""
    changes = (
        i + 1 for i, (a, b) in enumerate(pairwise(history.rounds[:index])) if a.length != b.length
    )
    first = max(changes, default=0)
    deepest = max(history.rounds[first:index], key=lambda one: one.depth)
    after = history.rounds[index].length
    if not history.reason(index) or deepest.depth + DEEPER < after:
        return ""
    most = "" if deepest.depth + DEEPER == after else f", but no more than {after}"
    return (
        f": the tree of {round_name(deepest)} was {deepest.depth} deep, and a draft may go "
        f"{DEEPER} steps deeper than the deepest recent tree{most}"
    )
