"""Explains a vote over drafted sequences: where they diverged, and the weight of each branch.

The combine rule `vote` (core/trees/combine/vote.py) takes the heaviest token from the root on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from core.events import Combined, DraftRecord, Verified
from core.plurals import number_of
from core.trees.combine.vote import DIGITS
from ui.run.explain import quote
from ui.run.listed import join_names

__all__ = ["deciding_split", "draft_paths", "dropped_choice", "winner_reasons"]

# `vote` compares weights to DIGITS places: equal sums may differ in the last bits.
SAME = 10**-DIGITS
TIE = "a tie, which goes to the heavier single drafter, then to the one named first"


def winner_reasons(tree: Combined, drafts: Sequence[DraftRecord]) -> list[str]:
    """Why the winning sequence was taken, and which of its drafters is the winner; empty unless
    several drafters drafted."""
    drafting = {draft.drafter: draft for draft in drafts if draft.token_ids}
    winner = drafting.get(tree.winner)
    if winner is None or len(drafting) < 2:
        return []
    splits = [
        (i, reason)
        for i in range(len(winner.token_ids))
        if (reason := _split_words(tree, drafting, winner, i))
    ]
    same_draft = [name for name, draft in drafting.items() if draft.token_ids == winner.token_ids]
    if splits:
        reason = f"They split at {splits[0][1]}{_later_words(splits[1:])}."
    elif len(same_draft) == len(drafting):
        reason = "All drafted the same."
    else:
        reason = _unrivalled_reason(drafting, same_draft)
    return [reason, *_winner_among(tree, same_draft)]


def _later_words(splits: Sequence[tuple[int, str]]) -> str:
    if not splits:
        return ""
    places = join_names([str(i + 1) for i, _ in splits])
    tie = " (a tie)" if any(TIE in reason for _, reason in splits) else ""
    return f", then at {'tokens' if len(splits) > 1 else 'token'} {places}{tie}"


def deciding_split(tree: Combined, drafts: Sequence[DraftRecord]) -> str:
    """The first split of the drafts, with the weight of each branch. Empty if no draft disagrees
    with the winner's draft."""
    drafting = {draft.drafter: draft for draft in drafts if draft.token_ids}
    winner = drafting.get(tree.winner)
    if winner is None:
        return ""
    splits = (_split_words(tree, drafting, winner, i) for i in range(len(winner.token_ids)))
    return next(filter(None, splits), "")


def dropped_choice(tree: Combined, drafts: Sequence[DraftRecord], verdict: Verified | None) -> str:
    """Says that the LLM's own token was drafted but dropped; otherwise empty."""
    if verdict is None or verdict.own_token_id is None:
        return ""
    accepted = tuple(tree.token_ids[node] for node in verdict.path)
    written = (*accepted, verdict.own_token_id)
    dropped = set(tree.dropped)
    drafters = [
        draft.drafter
        for draft in drafts
        for j, path in enumerate(draft_paths(draft))
        if path == written and (draft.drafter, j) in dropped
    ]
    if not drafters:
        return ""
    names = join_names(list(dict.fromkeys(drafters)))
    return f"The LLM wrote {quote(verdict.own_text)}, a token of {names} that was dropped."


def draft_paths(draft: DraftRecord) -> list[tuple[int, ...]]:
    """For every drafted node, the tokens after the root, up to the node's own."""
    paths: list[tuple[int, ...]] = []
    for j, token_id in enumerate(draft.token_ids):
        parent = draft.parents[j]
        paths.append((*(paths[parent] if parent >= 0 else ()), token_id))
    return paths


def _split_words(
    tree: Combined, drafting: Mapping[str, DraftRecord], winner: DraftRecord, i: int
) -> str:
    """The tokens after the winner's first `i` tokens, with weights; empty without a rival."""
    weights: dict[int, float] = {}
    counts: Counter[int] = Counter()
    texts: dict[int, str] = {}
    for name, draft in drafting.items():
        if len(draft.token_ids) > i and draft.token_ids[:i] == winner.token_ids[:i]:
            token_id = draft.token_ids[i]
            weights[token_id] = weights.get(token_id, 0.0) + tree.weights.get(name, 0.0)
            counts[token_id] += 1
            texts[token_id] = draft.texts[i]
    if len(weights) < 2:
        return ""
    own = winner.token_ids[i]

    def support(token_id: int, total: str = "") -> str:
        return f"{_digits(weights[token_id])}{total}, {number_of(counts[token_id], 'drafter')}"

    rivals = sorted((t for t in weights if t != own), key=lambda t: -weights[t])
    against = join_names([f"{quote(texts[t])} {support(t)}" for t in rivals])
    tie = f", {TIE}" if abs(weights[own] - weights[rivals[0]]) < SAME else ""
    total = f" of {_digits(sum(weights.values()))}"
    won_by = f"{quote(texts[own])} weight {support(own, total)}"
    return f"token {i + 1}: {won_by}, against {against}{tie}"


def _unrivalled_reason(drafting: Mapping[str, DraftRecord], same_draft: Sequence[str]) -> str:
    others = [draft for name, draft in drafting.items() if name not in same_draft]
    agreed = max(len(draft.token_ids) for draft in others)
    ending = "the other draft ends" if len(others) == 1 else "the other drafts end"
    earlier = "" if len(others) == 1 else " or before"
    return (
        f"No draft disagrees with it, but {ending} behind token {agreed}{earlier}, and it goes on."
    )


def _winner_among(tree: Combined, same_draft: Sequence[str]) -> list[str]:
    if len(same_draft) < 2:
        return []
    weights = sorted((tree.weights.get(name, 0.0) for name in same_draft), reverse=True)
    why = "the first of equal weight" if weights[0] - weights[1] < SAME else "the heaviest"
    return [f"Of the {len(same_draft)} that drafted it {tree.winner} is {why}."]


def _digits(weight: float) -> str:
    return "<0.01" if 0 < weight < 0.005 else f"{weight:.2f}"
