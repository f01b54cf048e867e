"""Proposers choose children from a drafter's logits: topk, coupled, sampled, sampled_iid.

Sources: SpecInfer 3.1 (expansion), Gumbel-top-k (arXiv 1903.06059) for draws without replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from core.config import SamplingParams
from core.drafters.calibration import Calibration, scores_of
from core.trees.noise import Key, Noise, choose_distinct
from core.trees.sampling import process_logits, to_probabilities

__all__ = [
    "Child",
    "Frontier",
    "Proposals",
    "Proposer",
    "coupled_top_k",
    "draw_distinct",
    "draw_independent",
    "proposer",
    "top_k",
]


@dataclass(frozen=True, slots=True)
class Child:
    """A proposed token with its score and q (see `core.trees.tree.Proposal`)."""

    token_id: int
    score: float
    q: float = 1.0


@dataclass(frozen=True, slots=True)
class Frontier:
    """The nodes to expand: their logits (n, V), the position of their children, and for draws a
    noise key for each node (see `core.trees.noise.Key`)."""

    logits: torch.Tensor
    position: int
    keys: Sequence[Key]
    sampling: SamplingParams
    noise: Noise
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Proposals:
    """Children of each frontier node, best first or in the order of draws.

    `utilities` (n, V): the scores are their calibrated softmax; None if the utilities are the
    logits. `q` (n, V) float64: the distributions from which children were drawn; None for
    proposers that do not draw.
    """

    children: list[list[Child]]
    utilities: torch.Tensor | None = None
    q: torch.Tensor | None = None


Proposer = Callable[[Sequence[Frontier], Sequence[int]], list[Proposals]]
"""(frontiers, widths) -> for each frontier at most `width` children for each of its nodes; the
children of a frontier do not depend on the other frontiers."""


def top_k(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    """The most probable tokens; deterministic, so q is one-hot."""
    logits = _concat([one.logits for one in frontiers])
    return [Proposals(children) for children in _top_children(logits, frontiers, widths)]


def coupled_top_k(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    """Top-k of log q + G(position), where G is the LLM's own noise. Under the verification rule
    `match` the LLM takes the arg max of log p + G: the closer q is to p, the likelier a child is
    the LLM's choice."""
    log_q = _log_processed(frontiers)
    sizes = [len(one.logits) for one in frontiers]
    noise = [
        one.noise.gumbel(one.position).expand(size, -1)
        for one, size in zip(frontiers, sizes, strict=True)
    ]
    utilities = log_q + _concat(noise)
    proposals = zip(
        _top_children(utilities, frontiers, widths), torch.split(utilities, sizes), strict=True
    )
    return [Proposals(children, utilities=own) for children, own in proposals]


def draw_distinct(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    """Draws from q without replacement (Gumbel-top-k, in its sorted order)."""
    return [_draw(*each, distinct=True) for each in zip(frontiers, widths, strict=True)]


def draw_independent(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    """Independent draws from q; a token may be drawn more than once."""
    return [_draw(*each, distinct=False) for each in zip(frontiers, widths, strict=True)]


def proposer(kind: str, *, greedy: bool) -> Proposer:
    """The proposer for a draft kind other than `auto`."""
    by_temperature = top_k if greedy else coupled_top_k
    proposers: dict[str, Proposer] = {
        "topk": top_k,
        "coupled": coupled_top_k,
        "sampled": draw_distinct,
        "sampled_iid": draw_independent,
        "best_first": by_temperature,
        "fused": by_temperature,
        "fused_credit": by_temperature,
    }
    return proposers[kind]


def _draw(frontier: Frontier, width: int, *, distinct: bool) -> Proposals:
    # Drawn from the processed distribution, scored by the unprocessed one.
    q = to_probabilities(process_logits(frontier.logits, frontier.sampling))
    scores = frontier.calibration.scores(frontier.logits)
    children = []
    for row, key in enumerate(frontier.keys):
        if distinct:
            token_ids = choose_distinct(frontier.noise, q[row], width, key)
        else:
            token_ids = [frontier.noise.choose(q[row], (*key, attempt)) for attempt in range(width)]
        mass_left = 1.0
        siblings = []
        for token_id in token_ids:
            mass = float(q[row, token_id])
            # Without replacement: q[y] / (1 - q of the siblings drawn before).
            siblings.append(Child(token_id, float(scores[row, token_id]), mass / mass_left))
            if distinct:
                # Rounding may make this zero or negative.
                mass_left = max(mass_left - mass, mass * 1e-12)
        children.append(siblings)
    return Proposals(children, q=q)


def _concat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _log_processed(frontiers: Sequence[Frontier]) -> torch.Tensor:
    """The logarithms of the processed distributions, (n, V) float64."""
    # If all requests have equal sampling, one call processes them.
    if len(frontiers) == 1 or len({one.sampling.distribution for one in frontiers}) == 1:
        log_probs = process_logits(
            _concat([one.logits for one in frontiers]), frontiers[0].sampling
        )
    else:
        log_probs = torch.cat([process_logits(one.logits, one.sampling) for one in frontiers])
    return log_probs.double().log_softmax(dim=-1)


def _top_children(
    utilities: torch.Tensor, frontiers: Sequence[Frontier], widths: Sequence[int]
) -> list[list[list[Child]]]:
    """The tokens of the highest utility for each node of each frontier. `utilities` (n, V): of all
    frontiers, concatenated."""
    sizes = [len(one.logits) for one in frontiers]
    calibrations = [
        one.calibration for one, size in zip(frontiers, sizes, strict=True) for _ in range(size)
    ]
    # The softmax is monotone: its top-k equals the utilities' top-k.
    values, ids = scores_of(utilities, calibrations).topk(
        min(max(widths), utilities.shape[-1]), dim=-1
    )
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [
        # A token of score 0 is left out: the SSM lacks it, or `sampling` excludes it.
        [
            [Child(t, v) for t, v in zip(tokens[:width], scores[:width], strict=True) if v > 0.0]
            for tokens, scores in islice(rows, size)
        ]
        for size, width in zip(sizes, widths, strict=True)
    ]
