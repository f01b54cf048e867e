"""What drafters without a model have in common: arrays to drafts, likelihoods for votes."""

from __future__ import annotations

import math
from collections.abc import Sequence as Many

import numpy as np

from core.events.parts import Timed
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["draft_of", "has_children", "likelihoods_of"]


def draft_of(nodes: np.ndarray, span: Timed) -> Draft:
    """`nodes`: rows of token id, parent, score, rank among its siblings."""
    return Draft(
        token_ids=nodes[:, 0].astype(int).tolist(),
        parents=nodes[:, 1].astype(int).tolist(),
        scores=nodes[:, 2].tolist(),
        qs=[1.0] * len(nodes),
        ranks=nodes[:, 3].astype(int).tolist(),
        timings=(span,),
    )


def has_children(draft: Draft, path: Many[int]) -> bool:
    """Whether the draft goes on behind `path`."""
    return (path[-1] if path else ROOT) in draft.parents


def likelihoods_of(draft: Draft | None, path: Many[int], count: int) -> list[float]:
    """The probabilities it gave to `count` committed tokens, of which `path` were proposals."""
    if draft is None:
        return [math.nan] * count
    scores = [draft.scores[node] for node in path]
    # No prediction after a wrong token.
    predicted = (scores + ([0.0] if has_children(draft, path) else []))[:count]
    return predicted + [math.nan] * (count - len(predicted))
