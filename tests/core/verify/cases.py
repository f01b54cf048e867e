"""Small trees made by hand, and distributions to verify them with."""

import torch

from core.config import SamplingParams
from core.trees.tree import ROOT, Proposal, TokenTree
from tests.laws.enumeration import WalkNoise

DRAWN = SamplingParams(temperature=1.0)


def tree_of(*nodes: tuple[int, int, list[Proposal]]) -> TokenTree:
    """(token, parent, proposals) for each node."""
    parents = [parent for _, parent, _ in nodes]
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return TokenTree(
        tuple(token for token, _, _ in nodes),
        tuple(parents),
        tuple(depths),
        tuple(tuple(offered) for _, _, offered in nodes),
    )


def certain(drafter: int = 0, rank: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank)


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log().float()


Q = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]], dtype=torch.float64)


def drawn(drafter: int, rank: int, token: int, row: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank, float(Q[row, token]), row)


class Refusing(WalkNoise):
    """Every coin falls the wrong way."""

    def coin(self, prob: float, key: tuple[object, ...]) -> bool:
        return False
