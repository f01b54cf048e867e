"""Small trees made by hand, and their distributions."""

import torch

from core.config import SamplingParams
from core.trees.sampling import Target
from core.trees.tree import ROOT, Proposal, TokenTree
from core.trees.verify import Verdict, VerifyInput, verify
from tests.laws.enumeration import WalkNoise, every_walk

DRAWN = SamplingParams(temperature=1.0)
P = [0.5, 0.3, 0.2]


def tree_of(*nodes: tuple[int, int, list[Proposal]]) -> TokenTree:
    """`nodes`: (token, parent, proposals) for each node, parents first."""
    parents = [parent for _, parent, _ in nodes]
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return TokenTree(
        tuple(token for token, _, _ in nodes), tuple(parents), tuple(depths),
        tuple(tuple(offered) for _, _, offered in nodes),
    )  # fmt: skip


def certain(drafter: int = 0, rank: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank)


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log().float()


Q = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]], dtype=torch.float64)


def drawn_proposal(drafter: int, rank: int, token: int, row: int = 0) -> Proposal:
    return Proposal(drafter, 0.5, rank, float(Q[row, token]), row)


class Refusing(WalkNoise):
    def coin(self, prob: float, key: tuple[object, ...]) -> bool:
        return False


def case_of(
    tree: TokenTree, noise: WalkNoise, *rows: list[float], eos: tuple[int, ...] = (), **flags: bool
) -> VerifyInput:
    """`rows`: p after the root and after each node; without `rows`, p is P everywhere."""
    target = Target(logits(*(rows or [P] * (len(tree) + 1))), DRAWN)
    return VerifyInput(tree, target, 9, noise, frozenset(eos), {0: Q, 1: Q, 2: None}, **flags)


def walks(
    rule: str, tree: TokenTree, *rows: list[float], **flags: bool
) -> list[tuple[float, Verdict]]:
    """(probability, verdict) for every outcome of the noise."""

    def run(noise: WalkNoise) -> Verdict:
        return verify(rule, case_of(tree, noise, *rows, **flags))

    return [(noise.probability, verdict) for noise, verdict in every_walk(run)]
