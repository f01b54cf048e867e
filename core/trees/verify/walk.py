"""Verification from the root down: `greedy`, `match` and `mss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from core.trees.sampling import one_hot_residual, residual
from core.trees.tree import ROOT, TokenTree
from core.trees.verify.base import (
    ChildProposal,
    Draws,
    TargetTokens,
    TrialResult,
    Verdict,
    VerifyInput,
    child_proposals,
    verdict_of,
)

__all__ = ["WALKS", "greedy", "match", "mss", "verdict_of_tokens"]

WALKS = ("greedy", "match")
"""The rules that share one walk."""
TargetToken = Callable[[int, int], int]
"""(node, depth) -> the LLM's token after the node."""
NodeProbability = Callable[[int], float]
"""node -> the LLM's probability of the node's token after its parent."""


def greedy(inputs: VerifyInput) -> Verdict:
    """Accepts at each node the child whose token is arg max p (SpecInfer, VerifyGreedy)."""
    return _walk_inputs(inputs, lambda node, depth: inputs.target.argmax[node + 1])


def match(inputs: VerifyInput) -> Verdict:
    """Accepts at each node the child whose token is y = argmax(log p + G), with G the Gumbel noise
    at the position of y. If no child has this token, y is the LLM's own token.

    y depends on p and G alone, so that `match` is lossless for any tree.
    """

    def own(node: int, depth: int) -> int:
        # Nodes of one depth share the noise of the next position.
        gumbel = inputs.noise.gumbel(inputs.root_position + depth + 1)
        return inputs.target.best(node + 1, gumbel)

    return _walk_inputs(inputs, own)


def verdict_of_tokens(tree: TokenTree, target: TargetTokens, eos_ids: frozenset[int]) -> Verdict:
    """The verdict of `greedy` or `match` from the LLM's tokens at all nodes."""
    tokens, node_probs = target.tokens, target.node_probs
    return _walk(tree, eos_ids, lambda node, _: tokens[node + 1], lambda child: node_probs[child])


def _walk_inputs(inputs: VerifyInput, own: TargetToken) -> Verdict:
    return _walk(
        inputs.tree,
        inputs.eos_ids,
        own,
        lambda child: inputs.target.node_probabilities(inputs.tree)[child],
    )


def _walk(
    tree: TokenTree, eos_ids: frozenset[int], own: TargetToken, node_probability: NodeProbability
) -> Verdict:
    """Follows the children that equal the LLM's token; stops at the first node without such a
    child, or after an end of text."""
    children = tree.child_lists()
    path: list[int] = []
    trials: list[TrialResult] = []
    node = ROOT
    while True:
        target_token = own(node, len(path))
        accepted_node = ROOT
        # Children have different tokens: at most one of them matches.
        for child in children[node]:
            matches = tree.token_ids[child] == target_token
            first = tree.proposals[child][0].drafter
            trials.append(TrialResult(child, first, node_probability(child), 1.0, matches))
            if matches:
                accepted_node = child
        if accepted_node == ROOT:
            return verdict_of(tree, path, target_token, trials, rejected=bool(children[node]))
        path.append(accepted_node)
        node = accepted_node
        # No own token follows an end of text.
        if target_token in eos_ids:
            return Verdict(tuple(path), None, "none", tuple(trials))


def mss(inputs: VerifyInput) -> Verdict:
    """SpecInfer Alg. 2, VerifyStochastic: at each node accept a proposal x iff u < p[x] / q[x].
    After a rejection, p <- norm(max(0, p - q)). If no proposal is accepted, draw from the remaining
    p."""
    children = inputs.tree.child_lists()
    path: list[int] = []
    # A part of the noise keys: no two decisions of a round share a key.
    draws: Draws = ()
    trials: list[TrialResult] = []
    node = ROOT
    while True:
        p = inputs.target.probabilities(node + 1)
        accepted, p = _try(inputs, children[node], p, draws, trials)
        if accepted is None:
            own = inputs.noise.choose(p, ("final", inputs.root_position, draws))
            return verdict_of(inputs.tree, path, own, trials, rejected=bool(children[node]))
        path.append(accepted.child)
        draws = (*draws, (accepted.drafter, accepted.attempt))
        node = accepted.child
        if inputs.tree.token_ids[node] in inputs.eos_ids:
            return Verdict(tuple(path), None, "none", tuple(trials))


def _try(
    inputs: VerifyInput,
    children: Sequence[int],
    p: torch.Tensor,
    draws: Draws,
    trials: list[TrialResult],
) -> tuple[ChildProposal | None, torch.Tensor]:
    """The accepted proposal among `children` (None if none was), and the remaining p."""
    for proposal in child_proposals(inputs, children):
        p_token = float(p[proposal.token_id])
        key = ("accept", inputs.root_position, draws, proposal.attempt)
        accepted = inputs.noise.coin(proposal.ratio(p_token), key)
        trials.append(
            TrialResult(proposal.child, proposal.drafter, p_token, proposal.q_token, accepted)
        )
        if accepted:
            return proposal, p
        # After a rejection p < q at the token: its new probability is 0.
        p = (
            one_hot_residual(p, proposal.token_id)
            if proposal.q is None
            else residual(p, proposal.q)
        )
    return None, p
