"""Fused drafts: which nodes are the trunk, and whose token each node is, in a sentence.

Pure: a round's events in. The rule is in core/drafters/fused_drafting.py: every SSM is fed the
trunk and proposes a token after it and after its own chain; proposals that do not join the trunk
stay as side leaves.
"""

from __future__ import annotations

from core.config.mechanisms import is_model_free
from core.events import Combined, ProposalRecord
from ui.run.listed import join_names
from ui.run.view import Detail

__all__ = ["own_proposals", "provenance", "trunk_of"]


def trunk_of(detail: Detail) -> frozenset[int]:
    """The trunk's nodes: those that every SSM of the round drafted or was fed. A token beside the
    trunk cannot come from the SSM whose token is in the trunk at that place."""
    tree, drafted = detail.combined, detail.drafted
    if tree is None or drafted is None or not tree.origins:
        return frozenset()
    drafters = {one.drafter for one in drafted.drafts if one.spans}
    together = {name for name in drafters if not is_model_free(name)}
    return frozenset(
        node
        for node, offered in enumerate(tree.proposals)
        if together and together <= {proposal.drafter for proposal in offered}
    )


def own_proposals(tree: Combined, node: int) -> list[ProposalRecord]:
    """A fused node's proposals, without SSMs that were only fed it."""
    return [proposal for proposal in tree.proposals[node] if proposal.rank == 0]


def provenance(detail: Detail, node: int, names: dict[str, str]) -> str:
    """Which drafter a node's token is from and why it is in the tree; empty if drafts are not
    fused. `names`: the drafters' names for the text."""
    tree = detail.combined
    if tree is None or not tree.origins:
        return ""
    trunk, whose = trunk_of(detail), tree.origins[node]
    owner = names.get(whose, whose)
    if is_model_free(whose):
        return f"{owner} proposed it beside the fused drafts."
    if node not in trunk:
        sibling = _sibling_on(trunk, tree, node)
        if sibling is None:
            return f"A side leaf: {owner}'s own chain, beside the trunk."
        other = names.get(tree.origins[sibling], tree.origins[sibling])
        return f"A side leaf: {owner}'s own token; the trunk went on with that of {other}."
    own = own_proposals(tree, node)
    best = next((one.score for one in own if one.drafter == whose), 0.0)
    surer = max(_rival_scores(tree, node), default=0.0)
    won = f"was the surest ({best:.2f})"
    if best < surer:
        won = f"counted for most by its credit (it was {best:.2f} sure, another {surer:.2f})"
    same = [names.get(p.drafter, p.drafter) for p in own if p.drafter != whose]
    also = f"; {join_names(same)} proposed it too" if same else ""
    fed = [p.drafter for p in tree.proposals[node] if p.rank > 0]
    rest = f"; {join_names([names.get(n, n) for n in fed])} was fed it" if fed else ""
    return f"On the trunk: {owner} {won}{also}{rest}."


def _sibling_on(trunk: frozenset[int], tree: Combined, node: int) -> int | None:
    """The node of the trunk after the same token."""
    return next((one for one in trunk if tree.parents[one] == tree.parents[node]), None)


def _rival_scores(tree: Combined, node: int) -> list[float]:
    """The scores of all SSMs' proposals after the same token."""
    above = tree.parents[node]
    return [
        proposal.score
        for one, parent in enumerate(tree.parents)
        if parent == above and not is_model_free(tree.origins[one])
        for proposal in own_proposals(tree, one)
    ]
