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
    before = "the token before it" if count == 1 else f"the {count} tokens before it"
    share, score = _percent(draft.shares[place]), _percent(draft.scores[place])
    if draft.drafter == TABLE:
        found = f"of what the LLM wrote after {before}, {share} was this"
    elif draft.drafter in (NGRAM, SUFFIX):
        found = (
            f"{before} occurred earlier, and {share} of what followed was this, longer matches "
            "counting more"
        )
    else:
        found = f"{before} were found, with a share of {share}"
    return f"{name}: {found}; weighed by its hits so far, {score}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
