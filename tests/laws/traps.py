"""Traps: small changes of the engine's rules that make them lossy."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

from core.drafters import growth
from core.drafters.growth import restrict
from core.drafters.proposers import Frontier, Proposals, top_k
from core.engine import round as round_module
from core.engine.round_state import RoundState
from core.trees.combine import CombinedTree, combine
from core.trees.draft import Draft
from core.trees.noise import Key, Noise
from core.trees.sampling import process_logits, to_probabilities
from core.trees.tree import Proposal
from core.trees.verify import Verdict, VerifyInput
from core.trees.verify import base as offers

Patch = pytest.MonkeyPatch
Order = list[tuple[Proposal, int]]
Rule = Callable[[Mapping[int, Draft]], CombinedTree]


def _combine_with(patch: Patch, rule: Rule) -> None:
    patch.setattr(round_module, "combine", lambda name, drafts, weights, keep: rule(drafts))


def _keep_only(keep: Callable[[tuple[Proposal, ...]], tuple[Proposal, ...]]) -> Rule:
    def rule(drafts: Mapping[int, Draft]) -> CombinedTree:
        tree = combine("union", drafts).tree
        return CombinedTree(replace(tree, proposals=tuple(keep(p) for p in tree.proposals)))

    return rule


def _drop_nodes(lose: Callable[[Draft], set[int]]) -> Rule:
    def rule(drafts: Mapping[int, Draft]) -> CombinedTree:
        return combine(
            "union", {index: _without(draft, lose(draft)) for index, draft in drafts.items()}
        )

    return rule


def _without(draft: Draft, lost: set[int]) -> Draft:
    kept: list[int] = []
    for node, parent in enumerate(draft.parents):
        if node not in lost and (parent == -1 or parent in kept):
            kept.append(node)
    return restrict(draft, kept)


def duplicates_merged(patch: Patch) -> None:
    """A token that is proposed several times is tried only once."""
    _combine_with(patch, _keep_only(lambda proposals: proposals[:1]))


def one_hot_merged(patch: Patch) -> None:
    """A deterministic proposal of a token is not tried if an SSM drew the same token."""

    def keep(proposals: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
        drawn = tuple(p for p in proposals if p.row is not None)
        return drawn or proposals

    _combine_with(patch, _keep_only(keep))


def low_q_dropped(patch: Patch) -> None:
    _combine_with(patch, _drop_nodes(lambda draft: {i for i, q in enumerate(draft.qs) if q < 0.35}))


def likelier_of_two_kept(patch: Patch) -> None:
    def lose(draft: Draft) -> set[int]:
        nodes = range(len(draft))
        best = {
            parent: max(
                (i for i in nodes if draft.parents[i] == parent), key=draft.scores.__getitem__
            )
            for parent in draft.parents
        }
        return {i for i in nodes if best[draft.parents[i]] != i}

    _combine_with(patch, _drop_nodes(lose))


def vote_with_the_winners_q(patch: Patch) -> None:
    """The draft whose first token most drafters drew is verified alone."""

    def rule(drafts: Mapping[int, Draft]) -> CombinedTree:
        votes = Counter(draft.token_ids[0] for draft in drafts.values())
        winner = max(drafts, key=lambda index: votes[drafts[index].token_ids[0]])
        return combine("union", {winner: drafts[winner]})

    _combine_with(patch, rule)


def fused_with_the_winners_q(patch: Patch) -> None:
    """The draft whose first token has the highest score is verified alone."""

    def rule(drafts: Mapping[int, Draft]) -> CombinedTree:
        winner = max(drafts, key=lambda index: drafts[index].scores[0])
        return combine("union", {winner: drafts[winner]})

    _combine_with(patch, rule)


def _top_k_with_q(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    return [
        replace(one, q=to_probabilities(process_logits(frontier.logits, frontier.sampling)))
        for one, frontier in zip(top_k(frontiers, widths), frontiers, strict=True)
    ]


def top_k_with_the_real_q(patch: Patch) -> None:
    """The most probable tokens are verified as if they had been drawn."""
    patch.setattr(growth, "proposer", lambda kind, *, greedy: _top_k_with_q)


def without_replacement_with_the_full_q(patch: Patch) -> None:
    """Draws without replacement are tried with the q of the first draw."""
    distribution = offers._distribution
    patch.setattr(
        offers, "_distribution", lambda case, proposal, earlier: distribution(case, proposal, [])
    )


def _order_by(patch: Patch, key: Callable[[VerifyInput, Proposal, int], object]) -> None:
    ordered = offers._order_proposals

    def sorted_by_key(case: VerifyInput, children: Sequence[int]) -> Order:
        return sorted(ordered(case, children), key=lambda offer: key(case, *offer))

    patch.setattr(offers, "_order_proposals", sorted_by_key)


def by_token_id(patch: Patch) -> None:
    _order_by(patch, lambda case, proposal, child: case.tree.token_ids[child])


def by_descending_q(patch: Patch) -> None:
    _order_by(patch, lambda case, proposal, child: -proposal.q)


def confident_drafter_first(patch: Patch) -> None:
    ordered = offers._order_proposals

    def by_highest_score(case: VerifyInput, children: Sequence[int]) -> Order:
        result = ordered(case, children)
        highest = {
            p.drafter: max(other.score for other, _ in result if other.drafter == p.drafter)
            for p, _ in result
        }
        return sorted(result, key=lambda offer: -highest[offer[0].drafter])

    patch.setattr(offers, "_order_proposals", by_highest_score)


def uniform_over_nodes(patch: Patch) -> None:
    """The order is drawn uniformly among nodes, not among proposals."""
    ordered = offers._order_proposals

    def draw_order(case: VerifyInput, children: Sequence[int]) -> Order:
        result = ordered(case, children)
        order: Order = []
        while remaining := sorted({offer[1] for offer in result if offer not in order}):
            key = ("order", case.root_position, tuple(children), len(order))
            child = remaining[case.noise.choose(torch.ones(len(remaining)), key)]
            order.append(next(o for o in result if o[1] == child and o not in order))
        return order

    patch.setattr(offers, "_order_proposals", draw_order)


def unlikely_node_accepted(patch: Patch) -> None:
    """If `greedy` or `match` accepts no node, the tree's first node is accepted."""
    decide = round_module._verdict

    def verdict(state: RoundState) -> Verdict:
        result = decide(state)
        if result.path or not len(state.tree):
            return result
        return Verdict((0,), state.target.argmax[1], "bonus")

    patch.setattr(round_module, "_verdict", verdict)


class PositionlessKeys:
    """Noise whose keys leave out the root's position: keys of two rounds can be equal."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def __getattr__(self, name: str) -> object:
        return getattr(self._noise, name)

    def coin(self, prob: float, key: Key) -> bool:
        return self._noise.coin(prob, _forget(key))

    def choose(self, weights: torch.Tensor, key: Key) -> int:
        return self._noise.choose(weights, _forget(key))


def _forget(key: Key) -> Key:
    return (key[0], *key[2:])


TRAPS: Mapping[str, Callable[[Patch], None]] = MappingProxyType(
    {
        trap.__name__: trap
        for trap in (
            duplicates_merged, one_hot_merged, low_q_dropped, likelier_of_two_kept,
            vote_with_the_winners_q, top_k_with_the_real_q, without_replacement_with_the_full_q,
            fused_with_the_winners_q, by_token_id, by_descending_q, confident_drafter_first,
            uniform_over_nodes,
        )
    }
)  # fmt: skip
