"""Batched verification by `greedy` and `match` gives the verdicts of `verify`."""

import random

import pytest
import torch

from core.config import SamplingParams
from core.cuda.acceptance import (
    TreeBatch,
    _pad_logits,
    _send_trees,
    accepted_paths,
    batched_target_tokens,
    target_outputs,
)
from core.cuda.draft_pass import MAX_END_TOKENS, padded_ends
from core.trees.noise import SeededNoise
from core.trees.sampling import Target
from core.trees.tree import ROOT, TokenTree
from core.trees.verify import VerifyInput, verdict_of_tokens, verify
from tests.core.verify.cases import certain, tree_of

VOCAB = 5
GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.8)
TRUNCATED = SamplingParams(temperature=1.4, top_k=3, top_p=0.8)
RULES = [("greedy", GREEDY), ("match", GREEDY), ("match", WARM), ("match", TRUNCATED)]
NAMES = ["greedy", "match-greedy", "match", "truncated"]


def random_tree(rng: random.Random, max_nodes: int) -> TokenTree:
    """The tree may be empty; siblings have different tokens."""
    nodes: list[tuple[int, int, list]] = []
    for _ in range(rng.randrange(max_nodes + 1)):
        parent = rng.randrange(ROOT, len(nodes))
        taken = {token for token, at, _ in nodes if at == parent}
        if free := [token for token in range(VOCAB) if token not in taken]:
            nodes.append((rng.choice(free), parent, [certain()]))
    return tree_of(*nodes)


def cases(
    seed: int, sampling: SamplingParams, count: int, max_nodes: int = 14
) -> list[VerifyInput]:
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    results = []
    for _ in range(count):
        tree = random_tree(rng, max_nodes)
        logits = 2 * torch.randn((len(tree) + 1, VOCAB), generator=generator)
        eos = frozenset(rng.sample(range(VOCAB), rng.randrange(2)))
        noise = SeededNoise(rng.randrange(1 << 40), VOCAB)
        results.append(VerifyInput(tree, Target(logits, sampling), rng.randrange(50), noise, eos))
    return results


def paths(rule: str, several: list[VerifyInput]) -> list[tuple[int, ...]]:
    """The accepted path of each case, found by `accepted_paths`."""
    width = max(len(case.target) for case in several)
    inputs = _send_trees(several, width, with_noise=rule == "match").device
    sizes = torch.tensor([[len(case.tree)] for case in several])
    tokens = inputs["tokens"].masked_fill(torch.arange(width - 1) >= sizes, -1)
    trees = TreeBatch(tokens, inputs["parents"], inputs["depths"])
    ancestors = torch.zeros((len(several), width, width), dtype=torch.bool)
    ancestors[:, range(width), range(width)] = True
    for row, case in enumerate(several):
        for node, parent in enumerate(case.tree.parents):
            ancestors[row, node + 1] |= ancestors[row, parent + 1]
    ends = torch.tensor([padded_ends(case.eos_ids) for case in several])
    bases = inputs["bases"] if rule == "match" else None
    sampling = several[0].target.sampling
    outputs = target_outputs(
        _pad_logits([case.target.logits for case in several]), trees, sampling, bases
    )
    result = accepted_paths(outputs, trees, ancestors, ends)
    found_paths = []
    for case, length, last in zip(several, result.length, result.last, strict=True):
        path = case.tree.path(int(last) - 1)
        assert len(path) == int(length)
        found_paths.append(path)
    return found_paths


@pytest.mark.parametrize("first", range(0, 40, 8))
@pytest.mark.parametrize(("rule", "sampling"), RULES, ids=NAMES)
def test_batched_verdicts_are_those_of_the_walk(
    rule: str, sampling: SamplingParams, first: int
) -> None:
    lengths = set()
    for seed in range(first, first + 8):
        several = cases(seed, sampling, 250 if rule == "match" else 25)
        result = batched_target_tokens(rule, several)
        expected = [verify(rule, case) for case in several]
        for case, one, verdict in zip(several, result, expected, strict=True):
            got = verdict_of_tokens(case.tree, one, case.eos_ids)
            assert (got.path, got.own_token_id, got.own_kind) == (
                verdict.path, verdict.own_token_id, verdict.own_kind,
            )  # fmt: skip
            assert [(t.node, t.drafter, t.accepted) for t in got.trials] == [
                (t.node, t.drafter, t.accepted) for t in verdict.trials
            ]
            assert [t.p for t in got.trials] == pytest.approx([t.p for t in verdict.trials])
        assert paths(rule, several) == [verdict.path for verdict in expected]
        lengths |= {len(verdict.path) for verdict in expected}
    assert lengths >= {0, 1, 2, 3}


def test_reported_probabilities_are_those_of_the_target() -> None:
    for rule, sampling in RULES:
        for case in cases(3, sampling, 30):
            (result,) = batched_target_tokens(rule, [case])
            shown = case.target.display_probabilities
            assert len(result.tokens) == len(result.token_probs) == len(case.tree) + 1
            for row, own in enumerate(result.tokens):
                assert result.token_probs[row] == pytest.approx(float(shown[row, own]))
            for node, parent in enumerate(case.tree.parents):
                expected = float(shown[parent + 1, case.tree.token_ids[node]])
                assert result.node_probs[node] == pytest.approx(expected)


def test_of_two_equal_paths_the_first_is_taken() -> None:
    """Node 0 equals node 2, and node 1 equals node 3."""
    trees = TreeBatch(
        torch.tensor([[3, 1, 3, 1]]), torch.tensor([[0, 1, 0, 3]]), torch.tensor([[0, 1, 2, 1, 2]])
    )
    ancestors = torch.eye(5, dtype=torch.bool)[None].clone()
    ancestors[:, :, 0] = True
    ancestors[0, 2, 1] = ancestors[0, 4, 3] = True
    logits = torch.zeros((1, 5, VOCAB))
    logits[0, 0, 3] = logits[0, 1, 1] = logits[0, 3, 1] = 1.0
    outputs = target_outputs(logits, trees, GREEDY, None)
    no_ends = torch.full((1, MAX_END_TOKENS), -1)
    result = accepted_paths(outputs, trees, ancestors, no_ends)
    assert (result.length.tolist(), result.last.tolist()) == ([2], [2])
    ended = accepted_paths(outputs, trees, ancestors, torch.tensor([[3]]))
    assert (ended.length.tolist(), ended.last.tolist()) == ([1], [1])


@pytest.mark.gpu
@pytest.mark.parametrize(("rule", "sampling"), RULES, ids=NAMES)
def test_a_gpu_gives_the_same_verdicts(rule: str, sampling: SamplingParams) -> None:
    for seed in range(4):
        several = cases(seed, sampling, 50)
        on_gpu = [
            VerifyInput(
                case.tree,
                Target(case.target.logits.cuda(), sampling),
                case.root_position,
                SeededNoise(case.noise.seed, VOCAB, "cuda"),  # type: ignore[attr-defined]
                case.eos_ids,
            )
            for case in several
        ]
        for case, one, other in zip(
            several, batched_target_tokens(rule, several), batched_target_tokens(rule, on_gpu),
            strict=True,
        ):  # fmt: skip
            assert (
                verdict_of_tokens(case.tree, one, case.eos_ids).path
                == verdict_of_tokens(case.tree, other, case.eos_ids).path
            )
            assert one.tokens == other.tokens
            assert one.node_probs == pytest.approx(other.node_probs, abs=1e-5)
