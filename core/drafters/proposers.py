"""How children are chosen from a drafter's logits: topk, coupled, sampled, sampled_iid.

A proposer turns the logits of a frontier, (n, V), into children for each frontier node. Rules and
sources: ALGORITHMS 1 and 2; SpecInfer 3 (expansion), Gumbel-top-k for draws without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

import torch

from core.config import SamplingParams
from core.drafters.calibration import Calibration
from core.noise import Key, Noise, choose_distinct
from core.sampling import processed, to_probabilities

__all__ = ["Child", "Frontier", "Proposals", "Proposer", "proposer"]


@dataclass(frozen=True, slots=True)
class Child:
    """A proposed token with its score and q (see `core.tree.Proposal`)."""

    token_id: int
    score: float
    q: float = 1.0


@dataclass(frozen=True, slots=True)
class Frontier:
    """The nodes about to get children: their logits (n, V), the position their children will have,
    and a noise key for each (`draft`, root position, drafter, path of draw indices)."""

    logits: torch.Tensor
    position: int
    keys: Many[Key]
    sampling: SamplingParams
    noise: Noise
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Proposals:
    """Children of each frontier node, best or first drawn first.

    `utilities` (n, V) are what the scores are the softmax of, None if the logits themselves; `q`
    (n, V) float64 the distributions drawn from, None for deterministic proposers.
    """

    children: list[list[Child]]
    utilities: torch.Tensor | None = None
    q: torch.Tensor | None = None


class Proposer(Protocol):
    """`propose(frontier, width)`: up to `width` children for each node."""

    def propose(self, frontier: Frontier, width: int) -> Proposals: ...


class TopK:
    """The most probable tokens; deterministic, so q is one-hot."""

    def propose(self, frontier: Frontier, width: int) -> Proposals:
        return Proposals(_best(frontier.calibration.scores(frontier.logits), width))


class Coupled:
    """Top-k of log q + G(position), G the target's own noise: under `match` the LLM will take the
    arg max of log p + G, so what p and q share is proposed exactly when it will be chosen."""

    def propose(self, frontier: Frontier, width: int) -> Proposals:
        log_q = processed(frontier.logits, frontier.sampling).double().log_softmax(dim=-1)
        utilities = log_q + frontier.noise.gumbel(frontier.position)
        scores = frontier.calibration.scores(utilities)
        return Proposals(_best(scores, width), utilities=utilities)


class Sampled:
    """Draws from q without replacement (Gumbel-top-k, in its sorted order)."""

    def propose(self, frontier: Frontier, width: int) -> Proposals:
        q = to_probabilities(processed(frontier.logits, frontier.sampling))
        scores = frontier.calibration.scores(frontier.logits)
        children = []
        for row, key in enumerate(frontier.keys):
            drawn = choose_distinct(frontier.noise, q[row], width, key)
            left = 1.0
            family = []
            for token_id in drawn:
                mass = float(q[row, token_id])
                family.append(Child(token_id, float(scores[row, token_id]), mass / left))
                left = max(left - mass, mass * 1e-12)
            children.append(family)
        return Proposals(children, q=q)


class SampledIid:
    """Independent draws from q; a token may be drawn, and will be tried, more than once."""

    def propose(self, frontier: Frontier, width: int) -> Proposals:
        q = to_probabilities(processed(frontier.logits, frontier.sampling))
        scores = frontier.calibration.scores(frontier.logits)
        children = []
        for row, key in enumerate(frontier.keys):
            drawn = [frontier.noise.choose(q[row], (*key, attempt)) for attempt in range(width)]
            children.append([Child(t, float(scores[row, t]), float(q[row, t])) for t in drawn])
        return Proposals(children, q=q)


def proposer(kind: str, *, greedy: bool) -> Proposer:
    """The proposer of a resolved draft kind. `best_first` chooses as topk, above T = 0 as
    coupled."""
    makers: dict[str, type[Proposer]] = {
        "topk": TopK,
        "coupled": Coupled,
        "sampled": Sampled,
        "sampled_iid": SampledIid,
        "best_first": TopK if greedy else Coupled,
    }
    return makers[kind]()


def _best(scores: torch.Tensor, width: int) -> list[list[Child]]:
    values, token_ids = scores.topk(min(width, scores.shape[-1]), dim=-1)
    return [
        # A token of score 0 is excluded by top-k or top-p: it can never be chosen.
        [Child(t, v) for t, v in zip(ids, vals, strict=True) if v > 0.0]
        for ids, vals in zip(token_ids.tolist(), values.tolist(), strict=True)
    ]
