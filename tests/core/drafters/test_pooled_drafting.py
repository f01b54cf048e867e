"""Pooled drafting: several SSMs draft one tree in lock-step, by the weighted geometric mean of
their scores."""

from collections.abc import Sequence

import pytest
import torch

from core.config import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.pooled_drafting import PooledRequest, draft_pooled
from core.drafters.ssm import SsmDrafter
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.sampling import penalize_repetition, process_logits
from core.trees.tree import ROOT
from tests.fakes import Table, TableModel, random_table, sequence_of
from tests.laws.trees import paths

VOCAB = 6
PROMPT = (0, 3, 1)
WEIGHTS = (1.5, 0.9, 0.6)


def scaled_table(seed: int) -> Table:
    """The logits have both signs: a repetition penalty changes each sign differently."""
    table = random_table(VOCAB, seed)
    return lambda context: [10 * share for share in table(context)]


def ssms(contexts: Sequence[int] = (64, 64, 64)) -> dict[str, SsmDrafter]:
    return {
        f"ssm-{i}": SsmDrafter(
            f"ssm-{i}", TableModel(f"ssm-{i}", VOCAB, scaled_table(i), context), VOCAB
        )
        for i, context in enumerate(contexts)
    }


def pooled_request(
    drafters: dict[str, SsmDrafter],
    kind: str,
    shape: tuple[int, ...],
    temperature: float = 0.0,
    penalty: float = 1.0,
) -> PooledRequest:
    config = SpeculationConfig(combine="log_pool", expansion=shape)
    sampling = SamplingParams(50, temperature=temperature, seed=3, repetition_penalty=penalty)
    sequence = sequence_of(PROMPT, config, sampling, SeededNoise(3, VOCAB))
    for drafter in drafters.values():
        drafter.open(sequence)
    several = [DraftRequest(sequence, i, kind, shape, 9, name) for i, name in enumerate(drafters)]
    return PooledRequest(tuple(several), WEIGHTS[: len(several)])


def model(drafters: dict[str, SsmDrafter], name: str) -> TableModel:
    result = drafters[name].feeder.model
    return result


def penalized_logits(
    drafters: dict[str, SsmDrafter], name: str, context: tuple[int, ...], penalty: float = 1.0
) -> torch.Tensor:
    logits = model(drafters, name).logits(context)
    return penalize_repetition(logits[None], penalty, context, [()])[0]


def pooled_scores(
    drafters: dict[str, SsmDrafter], context: tuple[int, ...], penalty: float = 1.0
) -> torch.Tensor:
    total = sum(WEIGHTS[: len(drafters)])
    parts = [
        weight / total * penalized_logits(drafters, name, context, penalty).log_softmax(-1)
        for name, weight in zip(drafters, WEIGHTS, strict=False)
    ]
    return torch.stack(parts).sum(dim=0).softmax(-1)


def shape_of(draft: Draft) -> tuple[list[int], list[int]]:
    return draft.token_ids, draft.parents


@pytest.mark.parametrize("penalty", [1.0, 3.0])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_children_are_the_tokens_with_the_best_pooled_scores(
    temperature: float, penalty: float
) -> None:
    drafters = ssms()
    kind = "coupled" if temperature else "topk"
    pool = pooled_request(drafters, kind, (2, 3), temperature, penalty)
    drafts = draft_pooled(drafters, pool)
    sequence = pool.requests[0].sequence
    draft = drafts[0]
    assert len(draft) == 2 + 6
    for node, path in [(ROOT, ()), *enumerate(paths(draft.token_ids, draft.parents))]:
        children = [draft.token_ids[i] for i in range(8) if draft.parents[i] == node]
        if len(path) == 2:
            continue
        scores = pooled_scores(drafters, (*PROMPT, *path), penalty).log()
        if temperature:
            warped = process_logits(scores[None].float(), sequence.sampling)[0].double()
            scores = warped + sequence.noise.gumbel(sequence.root_position + 1 + len(path))
        assert children == scores.topk(len(children)).indices.tolist()


@pytest.mark.parametrize("penalty", [1.0, 3.0])
def test_all_members_have_the_same_tree_each_with_its_own_scores(penalty: float) -> None:
    drafters = ssms()
    drafts = draft_pooled(drafters, pooled_request(drafters, "topk", (2, 2), penalty=penalty))
    assert len({str(shape_of(draft)) for draft in drafts}) == 1
    for name, draft in zip(drafters, drafts, strict=True):
        node_paths = paths(draft.token_ids, draft.parents)
        expected = [
            float(penalized_logits(drafters, name, context, penalty).softmax(-1)[token_id])
            for *above, token_id in node_paths
            for context in [(*PROMPT, *above)]
        ]
        assert draft.scores == pytest.approx(expected, rel=1e-4)


def test_members_make_equally_many_passes_and_follow_the_text() -> None:
    drafters = ssms()
    pool = pooled_request(drafters, "topk", (2, 2, 1))
    before = {name: model(drafters, name).passes for name in drafters}
    drafts = draft_pooled(drafters, pool)
    assert {model(drafters, n).passes - before[n] for n in drafters} == {3}
    assert [[t.lane for t in draft.timings] for draft in drafts] == [[n] * 3 for n in drafters]
    sequence = pool.requests[0].sequence
    accepted = (0, 2)
    tokens = (*(drafts[0].token_ids[i] for i in accepted), 5)
    sequence.commit(tokens)
    for name, draft in zip(drafters, drafts, strict=True):
        drafters[name].commit(sequence, draft, tokens)
        row = drafters[name]._states["run"].row
        assert model(drafters, name).tokens(row) == (*PROMPT, *tokens[:-1])


def test_a_much_heavier_member_decides() -> None:
    for heavy in (0, 1):
        drafters = ssms((64, 64))
        pool = pooled_request(drafters, "topk", (1,))
        weights = (50.0, 1.0) if heavy == 0 else (1.0, 50.0)
        name = f"ssm-{heavy}"
        draft = draft_pooled(drafters, PooledRequest(pool.requests, weights))[0]
        assert draft.token_ids == [int(model(drafters, name).logits(PROMPT).argmax())]


def test_a_weight_of_0_does_not_spoil_the_pool() -> None:
    drafters = ssms((64, 64))
    pool = pooled_request(drafters, "topk", (2, 1))
    drafts = draft_pooled(drafters, PooledRequest(pool.requests, (2.0, 0.0)))
    assert drafts[0].token_ids[0] == int(model(drafters, "ssm-0").logits(PROMPT).argmax())


def test_a_member_whose_context_is_full_drafts_nothing() -> None:
    drafters = ssms((64, len(PROMPT) - 1))
    pool = pooled_request(drafters, "topk", (2,))
    drafts = draft_pooled(drafters, pool)
    assert len(drafts[0]) == 2 and len(drafts[1]) == 0
    full = ssms((2, 2))
    assert draft_pooled(full, pooled_request(full, "topk", (2,))) == [Draft(), Draft()]


def test_best_first_keeps_the_pools_best_nodes() -> None:
    drafters = ssms()
    pool = pooled_request(drafters, "best_first", (3, 3, 3))
    drafts = draft_pooled(drafters, pool)
    assert len(drafts[0]) == 9
    for draft in drafts:
        assert shape_of(draft) == shape_of(drafts[0])
        assert all(score <= 1 for score in draft.scores)
