"""From logits to distributions: processing, Gumbel arg max, residuals.

`process_logits` serves the LLM's p and a drafter's q. The warpers are transformers' own objects:
ties at the edges of top-k and top-p are decided as in `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core.config import SamplingParams
from core.trees.tree import ROOT, TokenTree

__all__ = [
    "TINY_RESIDUAL",
    "Target",
    "one_hot_residual",
    "penalize_repetition",
    "penalize_tree",
    "process_logits",
    "residual",
    "to_probabilities",
    "unprocessed_probabilities",
]

# A residual with a smaller sum is a rounding error of float64 softmaxes.
TINY_RESIDUAL = 1e-12


def process_logits(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Logits (n, V) to processed scores (n, V), float32, excluded tokens at -inf.

    Temperature, top-k, top-p, min-p in that order, as in transformers' `generate`. At temperature 0
    the scores are 0 at the arg max and -inf elsewhere: a one-hot distribution.
    """
    scores = logits.float()
    if sampling.greedy:
        best = scores.argmax(dim=-1, keepdim=True)
        return torch.full_like(scores, float("-inf")).scatter_(-1, best, 0.0)
    if not sampling.warps:
        return scores / float(sampling.temperature)  # equals the warper, in less time
    warpers: list[Any] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0.0:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    no_ids: Any = torch.empty((scores.shape[0], 0), dtype=torch.long, device=scores.device)
    for warper in warpers:  # not as a LogitsProcessorList: that looks up signatures at each call
        scores = warper(no_ids, scores)  # these warpers read no ids
    return scores


def penalize_repetition(
    logits: torch.Tensor, penalty: float, tokens: Sequence[int], paths: Sequence[Sequence[int]]
) -> torch.Tensor:
    """CTRL's penalty (arXiv 1909.05858, equation 2) on logits (n, V). Positive logits of the text's
    tokens are divided by `penalty`, negative logits are multiplied by it. Returns float32 (n, V).

    The text of row i is `tokens`, then `paths[i]`.
    """
    scores = logits.float()
    vocab_size = scores.shape[-1]
    # A token that occurs twice is penalized once, as in transformers.
    mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    # An embedding may have more rows than the LM head: ids past the logits cannot be generated.
    mask[:, [token_id for token_id in set(tokens) if token_id < vocab_size]] = True
    for row, path in enumerate(paths):
        mask[row, [token_id for token_id in path if token_id < vocab_size]] = True
    return torch.where(mask, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def penalize_tree(
    logits: torch.Tensor, sampling: SamplingParams, tokens: Sequence[int], tree: TokenTree
) -> torch.Tensor:
    """`penalize_repetition` for the logits (1 + nodes, V) after the root and every node of a tree
    that continues `tokens`."""
    if not sampling.penalizes:
        return logits
    paths = [tree.tokens_to(node) for node in (ROOT, *range(len(tree)))]
    return penalize_repetition(logits, sampling.repetition_penalty, tokens, paths)


def to_probabilities(scores: torch.Tensor) -> torch.Tensor:
    """Processed scores (..., V) to float64 probabilities of the same shape."""
    # In float64: residuals are differences of nearly equal numbers.
    return scores.double().softmax(dim=-1)


def unprocessed_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """The plain softmax, float32."""
    return logits.float().softmax(dim=-1)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """norm(max(0, p - q)), float64 (V,); p if the sum is below TINY_RESIDUAL.

    In exact arithmetic the sum is positive after a rejection: q > p somewhere needs p > q somewhere
    else.
    """
    rest = (p - q).clamp_(min=0.0)
    total = rest.sum()
    return p if float(total) < TINY_RESIDUAL else rest / total


def one_hot_residual(p: torch.Tensor, token_id: int) -> torch.Tensor:
    """`residual` for a deterministic proposal (q one-hot): p without `token_id`, renormalized."""
    rest = p.clone()
    rest[token_id] = 0.0
    total = rest.sum()
    return p if float(total) < TINY_RESIDUAL else rest / total


class Target:
    """The LLM's distributions at the root and every node of one tree.

    `logits` (1 + nodes, V): row 0 belongs to the root, row i + 1 to node i.
    """

    def __init__(self, logits: torch.Tensor, sampling: SamplingParams) -> None:
        self.logits = logits
        self.sampling = sampling
        self._scores: torch.Tensor | None = None
        self._display: torch.Tensor | None = None
        self._argmax: list[int] | None = None
        self._node_probabilities: list[float] | None = None

    def __len__(self) -> int:
        return self.logits.shape[0]

    @property
    def argmax(self) -> list[int]:
        """The most probable token of each row."""
        if self._argmax is None:
            # On a CPU NumPy is faster, and returns the lowest id on ties.
            logits = self.logits
            array = logits.numpy() if logits.device.type == "cpu" else logits
            self._argmax = [int(i) for i in array.argmax(-1).tolist()]
        return self._argmax

    def best(self, row: int, gumbel: torch.Tensor) -> int:
        """arg max(log p + G) at one row, with the noise G, float64 (V,)."""
        # log p and the scores differ by a constant.
        scores = self.scores
        if scores.device.type != "cpu":
            return int((scores[row] + gumbel).argmax())
        return int((scores.numpy()[row] + gumbel.numpy()).argmax())

    @property
    def scores(self) -> torch.Tensor:
        """Processed scores (rows, V), float32."""
        if self._scores is None:
            self._scores = process_logits(self.logits, self.sampling)
        return self._scores

    def probabilities(self, row: int) -> torch.Tensor:
        """p at one row, float64 (V,), not cached."""
        return to_probabilities(self.scores[row])

    @property
    def display_probabilities(self) -> torch.Tensor:
        """The probabilities shown to the user, float32 (rows, V): p, or at temperature 0 the
        unprocessed softmax."""
        if self._display is None:
            greedy = self.sampling.greedy
            self._display = unprocessed_probabilities(self.logits if greedy else self.scores)
        return self._display

    def node_probabilities(self, tree: TokenTree) -> list[float]:
        """Each node's probability given its parent, from `display_probabilities`."""
        if self._node_probabilities is None:
            # The rows of the nodes' parents; the root's row is 0.
            parents = torch.tensor(tree.parents, dtype=torch.long, device=self.logits.device) + 1
            token_ids = torch.tensor(tree.token_ids, dtype=torch.long, device=self.logits.device)
            self._node_probabilities = self.display_probabilities[parents, token_ids].tolist()
        return self._node_probabilities
