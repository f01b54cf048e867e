"""What a lookup had found where it proposed a node, in a sentence.

Pure: a round's events in. The counts are those of core/drafters: `suffix` and `ngram` find earlier
occurrences of the text's end, `table` has counted what the LLM wrote.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.config.mechanisms import NGRAM, SUFFIX, TABLE
from core.events import DraftRecord
from ui.run.trees import places
from ui.run.view import Detail

__all__ = ["lookup_reasons"]


def lookup_reasons(detail: Detail, node: int, names: Mapping[str, str]) -> str:
    """A sentence for each lookup that proposed the node; empty without one. `names`: the drafters'
    names for the text."""
    sentences = []
    for draft in detail.drafted.drafts if detail.drafted else ():
        if draft.contexts and node in (found := places(detail, draft.drafter)).values():
            place = next(j for j, n in found.items() if n == node)
            sentences.append(_reason(draft, place, names.get(draft.drafter, draft.drafter)))
    return " ".join(sentences)


def _reason(draft: DraftRecord, place: int, name: str) -> str:
    count = draft.contexts[place]
    before = "the token" if count == 1 else f"the {count} tokens"
    share, score = _percent(draft.shares[place]), _percent(draft.scores[place])
    found = f"{name} found {before} before it; {share} of what followed was this token"
    if draft.drafter == TABLE:
        found = f"{name} has counted what the LLM writes after {before} before it: {share} this"
    elif draft.drafter in (NGRAM, SUFFIX):
        found = (
            f"{name} found {before} before it elsewhere; {share} of what followed such places was "
            "this token, longer matches counting more"
        )
    return f"{found}. With how often such proposals were accepted, that made {score}."


def _percent(chance: float) -> str:
    return f"{100 * chance:.0f} %"
