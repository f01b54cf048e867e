"""Acceptance over tensors gives the verdicts of the walk, for any tree, noise and sampling."""

from __future__ import annotations

import random

import pytest
import torch

from core.config import SamplingParams
from core.device.acceptance import Trees, accepted, judge
from core.device.drafting import ENDS, ends_of
from core.noise import SeededNoise
from core.sampling import Target
from core.tree import ROOT, TokenTree
from core.verify import Case, told, verify
from core.verify.at_once import _padded, _told, said_of
from tests.core.verify.cases import certain, tree_of

VOCAB = 5
GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.8)
EDGED = SamplingParams(temperature=1.4, top_k=3, top_p=0.8)
RULES = [("greedy", GREEDY), ("match", WARM), ("match", EDGED)]


def random_tree(rng: random.Random, most: int) -> TokenTree:
    """Siblings have different tokens; now and then there is no node at all."""
    nodes: list[tuple[int, int, list]] = []
    for _ in range(rng.randrange(most + 1)):
        parent = rng.randrange(ROOT, len(nodes))
        taken = {token for token, at, _ in nodes if at == parent}
        if free := [token for token in range(VOCAB) if token not in taken]:
            nodes.append((rng.choice(free), parent, [certain()]))
    return tree_of(*nodes)


def cases(seed: int, sampling: SamplingParams, count: int, most: int = 14) -> list[Case]:
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        tree = random_tree(rng, most)
        logits = 2 * torch.randn((len(tree) + 1, VOCAB), generator=generator)
        eos = frozenset(rng.sample(range(VOCAB), rng.randrange(2)))
        noise = SeededNoise(rng.randrange(1 << 40), VOCAB)
        found.append(Case(tree, Target(logits, sampling), rng.randrange(50), noise, eos))
    return found


def paths(rule: str, several: list[Case]) -> list[tuple[int, ...]]:
    """Accepted nodes of each, over tensors alone."""
    width = max(len(case.target) for case in several)
    slip = _told(several, width, noisy=rule == "match")
    sizes = torch.tensor([[len(case.tree)] for case in several])
    tokens = slip.here["tokens"].masked_fill(torch.arange(width - 1) >= sizes, -1)
    trees = Trees(tokens, slip.here["parents"], slip.here["depths"])
    sees = torch.zeros((len(several), width, width), dtype=torch.bool)
    sees[:, range(width), range(width)] = True
    for row, case in enumerate(several):
        for node, parent in enumerate(case.tree.parents):
            sees[row, node + 1] |= sees[row, parent + 1]
    ends = torch.tensor([ends_of(case.eos_ids) for case in several])
    bases = slip.here["bases"] if rule == "match" else None
    sampling = several[0].target.sampling
    judged = judge(_padded([case.target.logits for case in several]), trees, sampling, bases)
    found = accepted(judged, trees, sees, ends)
    told_paths = []
    for case, length, last in zip(several, found.length, found.last, strict=True):
        path = case.tree.path(int(last) - 1)
        assert len(path) == int(length)
        told_paths.append(path)
    return told_paths


@pytest.mark.parametrize("first", [0, 20])
@pytest.mark.parametrize(("rule", "sampling"), RULES, ids=["greedy", "match", "edged"])
def test_ten_thousand_noises(rule: str, sampling: SamplingParams, first: int) -> None:
    lengths = set()
    for seed in range(first, first + 20):
        several = cases(seed, sampling, 250 if rule == "match" else 25)
        said = said_of(rule, several)
        wanted = [verify(rule, case) for case in several]
        for case, one, verdict in zip(several, said, wanted, strict=True):
            found = told(case.tree, one, case.eos_ids)
            assert (found.path, found.own_token_id, found.own_kind) == (
                verdict.path,
                verdict.own_token_id,
                verdict.own_kind,
            )
            assert [(t.node, t.drafter, t.accepted) for t in found.tried] == [
                (t.node, t.drafter, t.accepted) for t in verdict.tried
            ]
            assert [t.p for t in found.tried] == pytest.approx([t.p for t in verdict.tried])
        assert paths(rule, several) == [verdict.path for verdict in wanted]
        lengths |= {len(verdict.path) for verdict in wanted}
    assert lengths >= {0, 1, 2, 3}


def test_what_is_shown_is_what_a_target_shows() -> None:
    for rule, sampling in RULES:
        for case in cases(3, sampling, 30):
            (said,) = said_of(rule, [case])
            shown = case.target.shown
            assert len(said.own) == len(said.own_shown) == len(case.tree) + 1
            for row, own in enumerate(said.own):
                assert said.own_shown[row] == pytest.approx(float(shown[row, own]))
            for node, parent in enumerate(case.tree.parents):
                wanted = float(shown[parent + 1, case.tree.token_ids[node]])
                assert said.shown[node] == pytest.approx(wanted)


def test_of_two_equal_paths_the_first_is_taken() -> None:
    """Two drafters' drafts side by side hold the same nodes: 0 and 2 below the root, 1 and 3."""
    trees = Trees(
        torch.tensor([[3, 1, 3, 1]]), torch.tensor([[0, 1, 0, 3]]), torch.tensor([[0, 1, 2, 1, 2]])
    )
    sees = torch.eye(5, dtype=torch.bool)[None].clone()
    sees[:, :, 0] = True
    sees[0, 2, 1] = sees[0, 4, 3] = True
    logits = torch.zeros((1, 5, VOCAB))
    logits[0, 0, 3] = logits[0, 1, 1] = logits[0, 3, 1] = 1.0
    judged = judge(logits, trees, GREEDY, None)
    none = torch.full((1, ENDS), -1)
    found = accepted(judged, trees, sees, none)
    assert (found.length.tolist(), found.last.tolist()) == ([2], [2])
    ended = accepted(judged, trees, sees, torch.tensor([[3]]))
    assert (ended.length.tolist(), ended.last.tolist()) == ([1], [1])


@pytest.mark.gpu
@pytest.mark.parametrize(("rule", "sampling"), RULES, ids=["greedy", "match", "edged"])
def test_a_gpu_says_the_same(rule: str, sampling: SamplingParams) -> None:
    for seed in range(4):
        several = cases(seed, sampling, 50)
        there = [
            Case(
                case.tree,
                Target(case.target.logits.cuda(), sampling),
                case.root_position,
                SeededNoise(case.noise.seed, VOCAB, "cuda"),  # type: ignore[attr-defined]
                case.eos_ids,
            )
            for case in several
        ]
        for case, one, other in zip(
            several, said_of(rule, several), said_of(rule, there), strict=True
        ):
            assert (
                told(case.tree, one, case.eos_ids).path == told(case.tree, other, case.eos_ids).path
            )
            assert one.own == other.own and one.shown == pytest.approx(other.shown, abs=1e-5)
