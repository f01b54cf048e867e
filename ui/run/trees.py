"""A round's tree as nodes to draw, in plain JSON. Before drafts are combined, the tree is their
union."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.config.mechanisms import PictureWords, combine_rule, is_model_free
from core.events import Combined, DraftRecord, ProposalRecord, Verified
from ui.run.probabilities import rounded_probability
from ui.run.view import Detail, View

__all__ = [
    "drafts_apart",
    "dropped_after",
    "dropped_values",
    "picture_words",
    "places",
    "tree_nodes",
    "trunk_of",
    "was_fed",
]


def tree_nodes(detail: Detail, drafters: tuple[str, ...]) -> dict[str, Any]:
    """The values of each node, by its number. `lp`: the LLM's probability; `by`: the proposers;
    `mass`: the node weight, None if the combine rule has none. For fused drafts also the drafter of
    the token (`origin`), and whether the node is in the `trunk`."""
    index = {name: str(i) for i, name in enumerate(drafters)}
    if detail.combined:
        nodes, trunk = _node_values(detail.combined, detail.verified, index), trunk_of(detail)
        for node, origin in enumerate(detail.combined.origins):
            nodes[str(node)] |= {"origin": index.get(origin, "-1"), "trunk": node in trunk}
        return nodes
    return _union_of(detail.drafted.drafts, index) if detail.drafted else {}


def trunk_of(detail: Detail) -> frozenset[int]:
    """The nodes that every SSM of the round drafted or was fed; empty if drafts are not fused."""
    tree, drafted = detail.combined, detail.drafted
    if tree is None or drafted is None or not tree.origins:
        return frozenset()
    drafters = {one.drafter for one in drafted.drafts if one.spans}
    ssms = {name for name in drafters if not is_model_free(name)}
    return frozenset(
        node
        for node, offered in enumerate(tree.proposals)
        if ssms and ssms <= {proposal.drafter for proposal in offered}
    )


def _node_values(tree: Combined, verdict: Verified | None, index: dict[str, str]) -> dict[str, Any]:
    return {
        str(n): {
            "t": tree.texts[n],
            "id": tree.token_ids[n],
            "parent": tree.parents[n],
            "depth": tree.depths[n],
            "outcome": verdict.outcomes[n] if verdict else "pending",
            "lp": rounded_probability(verdict.llm_probabilities[n]) if verdict else None,
            "by": _proposers(tree.proposals[n], index),
            "mass": round(tree.masses[n], 4) if tree.masses else None,
        }
        for n in range(len(tree.token_ids))
    }


def was_fed(drafter: str, rank: int) -> bool:
    """Whether a drafter of a fused tree was fed a token instead of proposing it."""
    return rank > 0 and not is_model_free(drafter)


def _proposers(proposals: tuple[ProposalRecord, ...], index: dict[str, str]) -> dict[str, Any]:
    """A node's proposals by drafter. Of several draws of the token by one drafter the first
    counts."""
    by: dict[str, Any] = {}
    for proposal in proposals:
        value = {
            "score": rounded_probability(proposal.score),
            "q": rounded_probability(proposal.q),
            "fed": was_fed(proposal.drafter, proposal.rank),
        }
        by.setdefault(index.get(proposal.drafter, "-1"), value)
    return by


def _union_of(drafts: tuple[DraftRecord, ...], index: dict[str, str]) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    # (node above, token) -> node: equal tokens after the same node are one node, as in a trie.
    node_at: dict[tuple[int, int], int] = {}
    for draft in drafts:
        place: dict[int, int] = {-1: -1}
        for j, token_id in enumerate(draft.token_ids):
            above = place[draft.parents[j]]
            node = node_at.setdefault((above, token_id), len(node_at))
            place[j] = node
            entry = nodes.setdefault(str(node), _pending_node(draft, j, above))
            record = ProposalRecord(draft.drafter, draft.scores[j], draft.qs[j], draft.ranks[j])
            for key, value in _proposers((record,), index).items():
                entry["by"].setdefault(key, value)
    return nodes


def _pending_node(draft: DraftRecord, j: int, above: int) -> dict[str, Any]:
    return {
        "t": draft.texts[j],
        "id": draft.token_ids[j],
        "parent": above,
        "depth": draft.depths[j],
        "outcome": "pending",
        "lp": None,
        "by": {},
    }


def places(detail: Detail, drafter: str) -> Mapping[int, int]:
    """Index in the drafter's draft -> node of the combined tree, by walking both from the root."""
    drafts = detail.drafted.drafts if detail.drafted else ()
    draft = next((one for one in drafts if one.drafter == drafter), None)
    if draft is None or detail.combined is None:
        return {}
    tree = detail.combined
    dropped = {j for name, j in tree.dropped if name == drafter}
    nodes = {(tree.parents[n], tree.token_ids[n]): n for n in range(len(tree.token_ids))}
    node_numbers: dict[int, int] = {}
    for j, token_id in enumerate(draft.token_ids):
        parent = draft.parents[j]
        # -2 is no node's parent: descendants of a dropped token are not found in the tree.
        above = -1 if parent < 0 else node_numbers.get(parent, -2)
        if j not in dropped and (above, token_id) in nodes:
            node_numbers[j] = nodes[above, token_id]
    return node_numbers


def drafts_apart(detail: Detail, drafters: tuple[str, ...]) -> dict[str, Any]:
    """Each drafter's own tree; empty once the drafts are combined."""
    if detail.combined is not None or detail.drafted is None:
        return {}
    return {
        str(drafters.index(draft.drafter)): {
            str(j): {
                "t": draft.texts[j],
                "id": draft.token_ids[j],
                "parent": draft.parents[j],
                "depth": draft.depths[j],
                "score": rounded_probability(draft.scores[j]),
            }
            for j in range(len(draft.token_ids))
        }
        for draft in detail.drafted.drafts
        if draft.drafter in drafters
    }


def picture_words(view: View, tree: Combined) -> PictureWords:
    """The combine rule's words for this tree. If the rule itself drops no node, the words for
    dropped nodes may name another cause, such as the schedule."""
    rule, most = combine_rule(tree.rule), view.speculation.get("max_tree_nodes")
    below = isinstance(most, int) and len(tree.token_ids) < most
    if not rule.keeps_all:
        return rule.words
    part = next((one.scheduled for one in view.rounds if one.number == tree.round), None)
    if part is not None and part.num_granted < part.num_drafted and part.num_live > 1:
        short = f"left out by schedule {part.schedule}"
        why = "likelier tokens of other requests were verified, or it was not worth the time"
        return replace(rule.words, dropped=f"{short.capitalize()}: {why}", dropped_short=short)
    # If the tree has fewer nodes than the budget, the length policy or the schedule dropped nodes.
    if not below:
        return rule.words
    usual = PictureWords()
    return replace(rule.words, dropped=usual.dropped, dropped_short=usual.dropped_short)


def dropped_after(detail: Detail, node: int, token_id: int) -> tuple[str, ...]:
    """The drafters whose draft of token `token_id` after `node` (-1: the root) was dropped."""
    drafts = detail.drafted.drafts if detail.combined and detail.drafted else ()
    dropped = detail.combined.dropped if detail.combined else ()
    return tuple(
        draft.drafter
        for draft in drafts
        for nodes in [{-1: -1, **places(detail, draft.drafter)}]
        if any(
            name == draft.drafter
            and draft.token_ids[j] == token_id
            and nodes.get(max(draft.parents[j], -1)) == node
            for name, j in dropped
        )
    )


def dropped_values(detail: Detail, drafters: tuple[str, ...], root_text: str) -> dict[str, Any]:
    """Drafted tokens that are not in the tree, each once for all its drafters.

    `parent`: a node's number (-1: the root), or d<k> for another dropped token. `mass`: the node
    weight, None if the combine rule has none."""
    tree = detail.combined
    if tree is None or detail.drafted is None:
        return {}
    index = {name: str(i) for i, name in enumerate(drafters)}
    masses = dict(zip(tree.dropped, tree.dropped_masses, strict=False))
    texts: dict[tuple[str, int], str] = {}
    values: dict[str, Any] = {}
    for draft in detail.drafted.drafts:
        place: dict[int, str] = {j: str(n) for j, n in places(detail, draft.drafter).items()}
        dropped = {j for name, j in tree.dropped if name == draft.drafter}
        for j in sorted(dropped):
            parent = draft.parents[j]
            # Parents come first in a draft: `place` has the parent already.
            above = "-1" if parent < 0 else place.get(parent, "-1")
            key = texts.setdefault((above, draft.token_ids[j]), str(len(texts)))
            place[j] = f"d{key}"
            mass = masses.get((draft.drafter, j))
            text = root_text if parent < 0 else draft.texts[parent]
            entry = values.setdefault(key, _dropped_value(draft, j, above, text, mass))
            proposal = {
                "score": rounded_probability(draft.scores[j]),
                "q": rounded_probability(draft.qs[j]),
                "n": 1,
            }
            # A drafter's first draw counts.
            entry["by"].setdefault(index.get(draft.drafter, "-1"), proposal)
    return values


def _dropped_value(
    draft: DraftRecord, j: int, above: str, parent_text: str, mass: float | None
) -> dict[str, Any]:
    return {
        "t": draft.texts[j],
        "id": draft.token_ids[j],
        "depth": draft.depths[j],
        "parent": above,
        "parent_text": parent_text,
        "mass": None if mass is None else round(mass, 4),
        "by": {},
    }
