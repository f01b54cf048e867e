"""Where a tree node's token comes from, in a sentence: an SSM of a fused draft, or a lookup.

In a fused draft (core/drafters/fused_drafting.py) all SSMs draft one chain together, the trunk."""

from __future__ import annotations

from collections.abc import Mapping

from core.config.mechanisms import NGRAM, SUFFIX, TABLE, is_model_free
from core.events import Combined, DraftRecord, ProposalRecord
from core.plurals import number_of
from ui.run.listed import join_names
from ui.run.trees import places, trunk_of, was_fed
from ui.run.view import Detail

__all__ = ["fused_provenance", "lookup_reasons", "own_proposals"]


def own_proposals(tree: Combined, node: int) -> list[ProposalRecord]:
    """A fused node's proposals, without the SSMs that were fed its token."""
    return [one for one in tree.proposals[node] if not was_fed(one.drafter, one.rank)]


def fused_provenance(detail: Detail, node: int, names: dict[str, str]) -> str:
    """Which drafter a node's token is from, and why the token is in the tree; empty if drafts are
    not fused. `names`: each drafter's label."""
    tree = detail.combined
    if tree is None or not tree.origins:
        return ""
    trunk, origin = trunk_of(detail), tree.origins[node]
    owner = names.get(origin, origin)
    if is_model_free(origin):
        return f"{owner} proposed it beside the fused drafts."
    if node not in trunk:
        sibling = next((one for one in trunk if tree.parents[one] == tree.parents[node]), None)
        if sibling is None:
            return f"A side leaf: {owner}'s own chain, beside the trunk."
        other = names.get(tree.origins[sibling], tree.origins[sibling])
        return f"A side leaf: {owner}'s own token; the trunk went on with that of {other}."
    own = own_proposals(tree, node)
    score = next((one.score for one in own if one.drafter == origin), 0.0)
    highest = max(_scores_after_parent(tree, node), default=0.0)
    reason = f"was the surest ({score:.2f})"
    if score < highest:
        reason = f"counted for most by its credit (it was {score:.2f} sure, another {highest:.2f})"
    same = [names.get(p.drafter, p.drafter) for p in own if p.drafter != origin]
    also = f"; {join_names(same)} proposed it too" if same else ""
    fed = [p.drafter for p in tree.proposals[node] if was_fed(p.drafter, p.rank)]
    rest = f"; {join_names([names.get(n, n) for n in fed])} was fed it" if fed else ""
    return f"On the trunk: {owner} {reason}{also}{rest}."


def _scores_after_parent(tree: Combined, node: int) -> list[float]:
    above = tree.parents[node]
    return [
        proposal.score
        for one, parent in enumerate(tree.parents)
        if parent == above
        for proposal in own_proposals(tree, one)
        if not is_model_free(proposal.drafter)
    ]


def lookup_reasons(detail: Detail, node: int, names: Mapping[str, str]) -> str:
    """A sentence for each lookup that proposed the node; empty if none did. `names`: each drafter's
    label."""
    sentences = []
    for draft in detail.drafted.drafts if detail.drafted else ():
        if draft.contexts and node in (found := places(detail, draft.drafter)).values():
            index = next(j for j, n in found.items() if n == node)
            sentences.append(_reason(draft, index, names.get(draft.drafter, draft.drafter)))
    return " ".join(sentences)


def _reason(draft: DraftRecord, index: int, name: str) -> str:
    count = draft.contexts[index]
    before = "the token before it" if count == 1 else f"the {number_of(count, 'token')} before it"
    share, score = _percent(draft.shares[index]), _percent(draft.scores[index])
    if draft.drafter == TABLE:
        found = f"of what the LLM wrote after {before}, {share} was this"
    elif draft.drafter in (NGRAM, SUFFIX):
        found = (
            f"{before} occurred earlier, and {share} of what followed was this, longer matches "
            "counting more"
        )
    else:
        found = f"{before} {'was' if count == 1 else 'were'} found, with a share of {share}"
    return f"{name}: {found}; its score, which counts its hits so far, is {score}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
