"""Stacked models give the logits that each model gives alone."""

from typing import Any

import pytest
import torch

from core.errors import EngineError
from core.models import fastest
from core.models.forward import MaskKind
from core.models.hf_model import HfModel
from core.models.lean import map_tensors
from core.models.loading.tree_check import checked_model
from core.models.protocol import CACHED, Feed, chain
from core.models.stacking import Stack, batched_forward, build_stack, common_stack, stack_alike
from tests.fakes import info_of, tiny_module

BRANCHED = [CACHED, CACHED, 0, 1, 3, 2]
LEAN = ("llama", "qwen2", "qwen3")


def small(family: str, seed: int, dtype: torch.dtype = torch.float32, **changes: Any) -> HfModel:
    module = tiny_module(family, seed=seed, dtype=dtype, **changes)
    return checked_model(module, info_of(module, f"{family}-{seed}", role="ssm"))


def alike(
    count: int, family: str = "llama", dtype: torch.dtype = torch.float32, **changes: Any
) -> Stack:
    stack = build_stack([small(family, seed, dtype, **changes) for seed in range(count)])
    return stack


def feeds_of(models: list[HfModel]) -> list[list[list[Feed]]]:
    rows = [(model.open_row(), model.open_row()) for model in models]
    prompts = [
        [chain(a, range(3, 20 + m)), chain(b, range(30, 36))] for m, (a, b) in enumerate(rows)
    ]
    trees = [
        [Feed(a, [5, 6, 7, 8, 9, 10 + m], BRANCHED), chain(b, [11, 12])]
        for m, (a, b) in enumerate(rows)
    ]
    one = [[chain(a, [4 + m])] for m, (a, _) in enumerate(rows)]
    return [prompts, trees, one]


def commit_all(models: list[HfModel], feeds: list[list[Feed]], kept: int) -> None:
    for model, own in zip(models, feeds, strict=True):
        for feed in own:
            model.commit(feed.row, range(len(feed.token_ids)) if kept < 0 else range(kept))


def check_close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("family", LEAN)
def test_a_stack_gives_the_logits_of_its_members(family: str) -> None:
    apart = [small(family, seed) for seed in range(3)]
    members = [small(family, seed) for seed in range(len(apart))]
    stack = build_stack(members)
    for i, (feeds, same) in enumerate(zip(feeds_of(members), feeds_of(apart), strict=True)):
        together = stack.forward(feeds)
        for model, own, result in zip(apart, same, together, strict=True):
            for one, other in zip(model.forward(own), result, strict=True):
                check_close(one, other)
        for models in (members, apart):
            commit_all(models, feeds, -1 if i != 1 else 1)


def test_members_may_make_passes_alone_between_shared_ones() -> None:
    apart = [small("llama", seed) for seed in range(3)]
    members = [small("llama", seed) for seed in range(len(apart))]
    stack = build_stack(members)
    first, second, third = feeds_of(members)
    feeds_of(apart)
    stack.forward(first)
    for model, own in zip(apart, first, strict=True):
        model.forward(own)
    for models in (members, apart):
        commit_all(models, first, -1)
    for model, other, own in zip(members, apart, second, strict=True):
        for one, two in zip(model.forward(own), other.forward(own), strict=True):
            check_close(one, two)
    for models in (members, apart):
        commit_all(models, second, 2)
    together = stack.forward(third)
    for model, own, result in zip(apart, third, together, strict=True):
        check_close(model.forward(own)[0], result[0])


def test_members_may_have_texts_of_different_lengths() -> None:
    apart = [small("llama", seed) for seed in range(2)]
    members = [small("llama", seed) for seed in range(len(apart))]
    stack = build_stack(members)
    for models in (members, apart):
        models[1].open_row()
        rows = [model.open_row() for model in models]
        for i, model in enumerate(models):
            model.forward([chain(rows[i], range(2, 5 + 7 * i))])
            model.commit(rows[i], range(3 + 7 * i))
    feeds = [[Feed(rows[0], [8, 9, 10], [CACHED, CACHED, 1])], [chain(rows[1], [3])]]
    for model, own, result in zip(apart, feeds, stack.forward(feeds), strict=True):
        check_close(model.forward(own)[0], result[0])


def test_only_models_of_one_shape_are_stacked() -> None:
    same, other = [small("llama", 1), small("llama", 2)], small("llama", 3, num_hidden_layers=1)
    general, qwen = small("gpt2", 4), [small("qwen3", 5), small("qwen3", 6)]
    windows = [small("mistral", 7), small("mistral", 8)]
    stack_alike([same[0], qwen[0], other, same[1], general, qwen[1], *windows])
    assert windows[0].masks.window and windows[0].lean_weights and common_stack(windows) is None
    assert common_stack(same) is not None and common_stack(qwen) is not None
    assert common_stack(same) is not common_stack(qwen)
    assert other.stack is None and general.stack is None
    assert common_stack(same[:1]) is None and common_stack(same[::-1]) is common_stack(same)
    assert common_stack([same[0], qwen[0]]) is None and build_stack([same[0], other]) is None


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_in_memory_once(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)  # passes run in torch
    module = tiny_module("llama", seed=1, dtype=torch.float32, tie_word_embeddings=tied)
    model = checked_model(module, info_of(module, "one"))
    stack = build_stack([model, small("llama", 2, tie_word_embeddings=tied)])
    weights = model.lean_weights
    shared = weights.embedding.untyped_storage().data_ptr()
    if not tied:
        assert module.model.embed_tokens.weight.untyped_storage().data_ptr() == shared
    assert stack.members[1].lean_weights.embedding.untyped_storage().data_ptr() == shared  # type: ignore[union-attr]
    own = sum(p.nbytes for p in module.parameters())
    # If tied, the embedding is stored a second time as the LM head.
    assert model.weight_bytes == own + (weights.head.nbytes if tied else 0)


def test_a_model_with_open_rows_is_not_stacked() -> None:
    models = [small("llama", seed) for seed in range(2)]
    models[0].open_row()
    with pytest.raises(EngineError, match="llama-0 has open rows"):
        build_stack(models)


def test_feeds_that_do_not_fit_in_one_pass_take_several() -> None:
    stack = alike(2)
    one, two = stack.members
    rows = [one.open_row(), one.open_row(), two.open_row()]
    uneven = [(one, [chain(rows[0], [1]), chain(rows[1], [2])]), (two, [chain(rows[2], [3])])]
    assert [passed.num_models for passed in batched_forward(uneven)] == [1, 1]
    commit_all([one, two], [feeds for _, feeds in uneven], -1)
    even = [(two, [chain(rows[2], [4])]), (one, [chain(rows[0], [5])])]
    batches = batched_forward(even)
    assert [passed.num_models for passed in batches] == [2, 2]
    assert batches[0].start == batches[1].start and batches[0].end > batches[0].start
    assert one.pending(rows[0]) == two.pending(rows[2]) == 1


def test_a_model_whose_context_ends_fails_alone() -> None:
    stack = alike(2)
    one, two = stack.members
    rows = [one.open_row(), two.open_row()]
    long = [chain(rows[0], [1] * (one.context_length + 1))]
    passes = batched_forward([(one, long), (two, [chain(rows[1], [3])])])
    assert isinstance(passes[0].logits, Exception) and isinstance(passes[1].logits, list)


def test_bfloat16_stacks_give_float32_logits() -> None:
    stack = alike(2, dtype=torch.bfloat16)
    feeds = [[chain(model.open_row(), [3, 4, 5])] for model in stack.members]
    for result in stack.forward(feeds):
        assert result[0].dtype == torch.float32 and bool(result[0].isfinite().all())


@pytest.mark.parametrize("members", [1, 2])
def test_last_only_is_each_rows_last_query(members: int) -> None:
    weights = [small("llama", seed).lean_weights for seed in range(members)]
    lean = [one for one in weights if one is not None]
    stacked = lean[0] if members == 1 else map_tensors(lean, torch.stack)
    forward = fastest.torch_forward(stacked, MaskKind())
    ids = torch.arange(2 * members * 5).view(-1, 5)
    positions = torch.arange(5).expand_as(ids)
    mask = torch.full((5, 5), torch.finfo(torch.float32).min).triu(1).expand(len(ids), 1, 5, 5)

    def logits(last_only: bool) -> torch.Tensor:
        own = (ids, positions, (mask, mask), lambda layer, k, v: (k, v))
        return forward.over(*own, last_only=last_only)

    check_close(logits(True), logits(False)[:, -1:])
