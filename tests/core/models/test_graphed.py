"""Passes in fixed shapes, and graphs captured on a GPU, give the logits of the lean pass
(`torch_forward`)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.models.fastest import torch_forward
from core.models.forward import TensorForward
from core.models.graph_cache import GraphPool
from core.models.graphed import EXTENT, WIDTHS, GraphedForward
from core.models.hf_model import HfModel
from core.models.loading.tree_check import checked_model
from core.models.protocol import CACHED, Feed, chain
from tests.core.models.test_lean import all_logits
from tests.core.models.test_stack import alike, commit_all, feeds_of
from tests.fakes import info_of, tiny_module

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "qwen2-sliding")


def fixed_and_plain(
    family: str, device: str = "cpu", dtype: torch.dtype = torch.float32, capture: bool = False
) -> tuple[HfModel, HfModel]:
    module = tiny_module(family, seed=3, dtype=dtype).to(device)
    plain = checked_model(module, info_of(module, family, role="ssm", context=4000))
    fixed = HfModel(None, plain.info, plain.masks, plain.lean_weights)
    plain._forward = _lean(plain)
    fixed._forward = GraphedForward(_lean(fixed), capture=capture)
    return fixed, plain


def _lean(model: HfModel) -> TensorForward:
    return torch_forward(model.lean_weights, model.masks)


def check_close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_in_fixed_shapes_gives_the_lean_passs_logits(family: str) -> None:
    fixed, plain = fixed_and_plain(family)
    for one, other in zip(all_logits(fixed), all_logits(plain), strict=True):
        check_close(one, other)


def test_rows_of_many_widths_and_long_texts_have_the_lean_passs_logits() -> None:
    fixed, plain = fixed_and_plain("llama")
    for model in (fixed, plain):
        model._info = (
            info_of(model._module, "long", role="ssm", context=4000)
            if model._module
            else model.info
        )
    results: list[list[torch.Tensor]] = []
    for model in (fixed, plain):
        rows = [model.open_row() for _ in range(3)]
        results.append([])
        for end in (5, 250, 6, 257, 700):
            ids = [3 + i % 40 for i in range(end)]
            results[-1] += model.forward([chain(rows[0], ids, last_only=True)])
            model.commit(rows[0], range(end))
        for row, count in zip(rows[1:], (3, 9), strict=True):
            model.forward([chain(row, range(2, 2 + count))])
            model.commit(row, range(count))
        results[-1] += model.forward(
            [chain(rows[0], [5] * 7), Feed(rows[2], [6, 7, 8], [CACHED, CACHED, 1])]
        )
        results[-1] += model.forward([chain(row, [9]) for row in rows])
    for one, other in zip(*results, strict=True):
        check_close(one, other)


def test_a_later_pass_does_not_change_earlier_logits() -> None:
    fixed, _ = fixed_and_plain("llama")
    row = fixed.open_row()
    (first,) = fixed.forward([chain(row, [5])])
    copy = first.clone()
    fixed.commit(row, [])
    (second,) = fixed.forward([chain(row, [6])])
    assert first.equal(copy) and not second.equal(first)


def test_shapes_are_few_and_dropped_when_the_arena_moves() -> None:
    fixed, _ = fixed_and_plain("llama")
    forward: Any = fixed._forward
    row = fixed.open_row()
    for count in range(1, 9):
        fixed.forward([chain(row, [5] * count)])
        fixed.commit(row, [])
    assert {width for _, width, _ in forward._passes} == {1, 2, 4, 8}
    before = dict(forward._passes)
    other = fixed.open_row()
    fixed.forward([chain(other, [5] * (WIDTHS[-1] + 1))])
    fixed.commit(other, [])
    fixed.forward([chain(other, [5])])
    assert all(one not in forward._passes.values() for one in before.values())


@pytest.mark.parametrize("start", [10, EXTENT - 3])
def test_padded_queries_write_only_to_an_unused_slot(start: int) -> None:
    """The fourth query is padding. It writes to the last slot, which no row has reached."""
    fixed, plain = fixed_and_plain("llama")
    end = start + 3
    for model in (fixed, plain):
        row = model.open_row()
        model.forward([chain(row, [2 + i % 50 for i in range(start)])])
        model.commit(row, range(start))
    (one,) = fixed.forward([chain(0, [5, 6, 7])])
    (other,) = plain.forward([chain(0, [5, 6, 7])])
    check_close(one, other)
    stored, expected = (model.arena._layers[0][0][0] for model in (fixed, plain))
    check_close(stored[:, :end], expected[:, :end])
    written = stored.ne(0).any(-1).any(0).nonzero().flatten().tolist()
    assert written == [*range(end), len(stored[0]) - 1]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_stacked_models_in_fixed_shapes_give_the_lean_passs_logits(family: str) -> None:
    results: list[list[torch.Tensor]] = []
    for fixed in (False, True):
        stack = alike(3, family)
        lean_pass = torch_forward(stack.weights, stack.members[0].masks)
        stack._forward = GraphedForward(lean_pass, capture=False) if fixed else lean_pass
        results.append([])
        for i, feeds in enumerate(feeds_of(list(stack.members))):
            results[-1] += [part for own in stack.forward(feeds) for part in own]
            commit_all(list(stack.members), feeds, -1 if i != 1 else 1)
    assert len(results[0]) == 15
    for one, other in zip(*results, strict=True):
        check_close(one, other)


def test_passes_that_cannot_be_captured_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, plain = fixed_and_plain("llama", capture=True)
    tried = []

    def refuse(_: object, work: object) -> None:
        tried.append(work)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(GraphPool, "capture", refuse)
    forward: Any = fixed._forward
    assert forward.captures
    row, other = fixed.open_row(), plain.open_row()
    with pytest.warns(UserWarning, match="slower: operation not permitted when stream is capt"):
        for _ in range(4):
            check_close(fixed.forward([chain(row, [5])])[0], plain.forward([chain(other, [5])])[0])
            fixed.commit(row, [0])
            plain.commit(other, [0])
    assert len(tried) == 1 and not forward.captures


def check_replayed_passes(fixed: HfModel, plain: HfModel) -> None:
    for _ in range(3):  # warms up; captures and replays; replays
        for one, other in zip(all_logits(fixed), all_logits(plain), strict=True):
            check_close(one, other)
        for model in (fixed, plain):
            model.close_row(0)
            model.close_row(1)
    forward: Any = fixed._forward
    assert forward.captures
    assert [one.run.is_captured for one in forward._passes.values()] == [True] * 5


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_passes_give_the_lean_passs_logits(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU, a graph is replaced by a function that runs the pass again."""
    num_replays = 0

    def capture(_: GraphPool, work: Callable[[], torch.Tensor]) -> tuple[Any, torch.Tensor]:
        output = work()

        def replay() -> None:
            nonlocal num_replays
            num_replays += 1
            output.copy_(work())

        return SimpleNamespace(replay=replay), output

    monkeypatch.setattr(GraphPool, "capture", capture)
    check_replayed_passes(*fixed_and_plain(family, capture=True))
    assert num_replays == 2 * 5


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_captured_graphs_give_the_lean_passs_logits(family: str) -> None:
    check_replayed_passes(*fixed_and_plain(family, "cuda", capture=True))


@pytest.mark.gpu
def test_passes_are_captured_again_after_the_arena_has_grown() -> None:
    """All graphs are dropped when the KV arena grows, but their shared memory must remain."""
    fixed, plain = fixed_and_plain("llama", "cuda", capture=True)
    row, other = fixed.open_row(), plain.open_row()
    forward: Any = fixed._forward
    for _ in range(3):
        for model, own_row in ((fixed, row), (plain, other)):
            model.forward([chain(own_row, [7] * (EXTENT - 1), last_only=True)])
            model.commit(own_row, range(EXTENT - 1))
        for _ in range(3):
            check_close(fixed.forward([chain(row, [5])])[0], plain.forward([chain(other, [5])])[0])
            fixed.commit(row, [0])
            plain.commit(other, [0])
        assert forward.captures and any(one.run.is_captured for one in forward._passes.values())
