"""HfModel's interface: rows, feeds, commits and refusals."""

from functools import cache
from typing import Any

import pytest
import torch

from core.errors import ContextLengthError, EngineError
from core.models.forward import GeneralForward, MaskKind, cache_argument
from core.models.hf_model import HfModel
from core.models.loading.tree_check import checked_model
from core.models.protocol import CACHED, Feed, chain
from tests.fakes import info_of, tiny_module


@cache
def model(context: int = 128) -> HfModel:
    module = tiny_module("llama", seed=6)
    return checked_model(module, info_of(module, "tiny", context=context))


@pytest.fixture
def row() -> object:
    opened = model().open_row()
    yield opened
    model().close_row(opened)


def test_a_chain_is_a_feed_of_parents() -> None:
    assert chain(3, [7, 8, 9]) == Feed(3, [7, 8, 9], [CACHED, 0, 1])
    assert chain(3, [7, 8], first=2).parents == [1, 2]


def test_logits_are_float32_one_row_a_token(row: int) -> None:
    (logits,) = model().forward([chain(row, [1, 2, 3])])
    assert (logits.shape, logits.dtype) == ((3, 64), torch.float32)
    assert model().pending(row) == 3
    model().commit(row, [0, 1])
    assert (model().length(row), model().pending(row)) == (2, 0)


def test_last_only_gives_the_last_row(row: int) -> None:
    (every,) = model().forward([chain(row, [1, 2, 3])])
    model().commit(row, [])
    (last,) = model().forward([chain(row, [1, 2, 3], last_only=True)])
    assert torch.allclose(last, every[-1:], atol=1e-6)


def test_last_only_works_in_a_batch(row: int) -> None:
    llm, other = model(), model().open_row()
    feeds = [chain(row, [5], last_only=True), chain(other, [1, 2, 3], last_only=True)]
    short, long = llm.forward(feeds)
    assert short.shape == long.shape == (1, 64)
    llm.commit(row, [])
    llm.commit(other, [])
    assert torch.allclose(llm.forward([chain(row, [5])])[0], short, atol=1e-6)
    assert torch.allclose(llm.forward([chain(other, [1, 2, 3])])[0][-1:], long, atol=1e-6)
    llm.close_row(other)


def test_a_commit_of_nodes_that_are_not_pending_is_refused(row: int) -> None:
    model().forward([chain(row, [1, 2])])
    for nodes in ([2], [-1], [0, 5]):
        with pytest.raises(EngineError, match=r"^commit nodes are \[.*\]: 0 to 1 are pending$"):
            model().commit(row, nodes)
    model().commit(row, [])


@pytest.mark.parametrize("number", [99, -1])
def test_a_row_that_is_not_open_is_refused(number: int) -> None:
    with pytest.raises(EngineError, match=rf"^row is {number}: it is not open$"):
        model().forward([chain(number, [1])])


def test_a_closed_row_is_refused() -> None:
    closed = model().open_row()
    model().close_row(closed)
    with pytest.raises(EngineError, match="not open"):
        model().length(closed)


def test_the_context_is_counted_in_positions_not_slots() -> None:
    llm = model(12)
    row = llm.open_row()
    llm.forward([chain(row, [1] * 10)])
    llm.commit(row, range(10))
    # Twenty siblings share one position; a chain of three would need a thirteenth position.
    llm.forward([Feed(row, [2] * 20, [CACHED] * 20)])
    llm.commit(row, [])
    llm.forward([chain(row, [1, 2])])
    llm.commit(row, [])
    with pytest.raises(ContextLengthError, match=r"context of tiny is 12 tokens: 13 were asked"):
        llm.forward([chain(row, [1, 2, 3])])
    assert llm.pending(row) == 0, "a refused feed leaves no pending node"
    llm.forward([chain(row, [1])])
    with pytest.raises(ContextLengthError, match="13 were asked"):
        llm.forward([chain(row, [2, 3], first=1)])
    llm.close_row(row)


def test_the_cache_grows_with_the_pending_nodes(row: int) -> None:
    llm = model()
    count = 100
    (logits,) = llm.forward([Feed(row, [i % 64 for i in range(count)], [CACHED] * count)])
    llm.commit(row, [])
    (one,) = llm.forward([chain(row, [99 % 64])])
    assert torch.allclose(logits[99], one[0], atol=1e-6)


def test_the_model_info_is_that_of_the_module() -> None:
    llm = model()
    assert (llm.info.name, llm.vocab_size, llm.context_length) == ("tiny", 64, 128)
    assert llm.info.architecture == "LlamaForCausalLM"
    assert llm.dtype == torch.float64


def test_nodes_that_are_kept_stay_pending(row: int) -> None:
    llm = model()
    llm.forward([chain(row, [1, 2])])
    llm.commit(row, [0, 1])
    # Below the committed tokens are token 6 and the chain of tokens 3, 4, 5, 8. Token 7 is below
    # token 4.
    llm.forward([Feed(row, [3, 6, 4, 7, 5, 8], [CACHED, CACHED, 0, 2, 2, 4])])
    llm.commit(row, [0, 2], [3, 4, 5])
    assert (llm.length(row), llm.pending(row)) == (4, 3)
    (below,) = llm.forward([Feed(row, [8, 9, 6], [0, 1, 2])])
    for token_ids, got in zip(([7, 8], [5, 9], [5, 8, 6]), below, strict=True):
        other = llm.open_row()
        (fresh,) = llm.forward([chain(other, [1, 2, 3, 4, *token_ids])])
        llm.close_row(other)
        assert torch.allclose(fresh[-1], got, atol=1e-5)
    llm.commit(row, [1, 2, 5])
    other = llm.open_row()
    (fresh,) = llm.forward([chain(other, [1, 2, 3, 4, 5, 8, 6, 2])])
    llm.close_row(other)
    assert torch.allclose(llm.forward([chain(row, [2])])[0][-1], fresh[-1], atol=1e-5)


class RenamedCache(torch.nn.Module):
    """A module whose argument for the KV cache may have another name than in the installed
    transformers."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module, self.own = module, cache_argument(module)


class Older(RenamedCache):
    def forward(self, past_key_values: Any, **kwargs: Any) -> Any:
        return self.module(**kwargs, **{self.own: past_key_values})


class Newer(RenamedCache):
    def forward(self, cache: Any, **kwargs: Any) -> Any:
        return self.module(**kwargs, **{self.own: cache})


@pytest.mark.parametrize("kind", [Older, Newer])
def test_the_cache_is_passed_by_the_modules_own_argument_name(kind: type[RenamedCache]) -> None:
    module, info = tiny_module("llama", seed=6), model().info
    messages = []
    for one in (module, kind(module)):
        llm = HfModel(one, info, MaskKind())
        assert isinstance(llm._forward, GeneralForward)
        row = llm.open_row()
        llm.forward([chain(row, [1, 2, 3])])
        llm.commit(row, range(3))
        messages += llm.forward([Feed(row, [4, 5, 6], [CACHED, CACHED, 0])])
    assert torch.equal(messages[0], messages[1])
