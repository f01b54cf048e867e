"""KVArena: rows, slots and growth."""

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.models.hf_model import HfModel
from core.models.kv_cache import ArenaCache, KVArena, LayerShape, SlotPlan
from core.models.loading.tree_check import checked_model
from core.models.protocol import CACHED, Feed, chain
from tests.fakes import info_of, tiny_module
from tests.laws.trees import LAW

WIDE, NARROW = LayerShape(2, 4, 4), LayerShape(1, 3, 5)


def arena_of(*shapes: LayerShape, rows: int = 2, slots: int = 8) -> KVArena:
    arena = KVArena(shapes or (WIDE, NARROW, WIDE), torch.float32, torch.device("cpu"))
    arena.reserve(rows, slots)
    return arena


def entries(shape: LayerShape, batch: int, width: int, start: float) -> tuple[torch.Tensor, ...]:
    keys = torch.arange(batch * shape.heads * width * shape.key_size, dtype=torch.float32) + start
    values = -torch.arange(batch * shape.heads * width * shape.value_size, dtype=torch.float32)
    return (
        keys.reshape(batch, shape.heads, width, shape.key_size),
        values.reshape(batch, shape.heads, width, shape.value_size),
    )


def test_a_write_returns_the_new_and_the_earlier_slots() -> None:
    arena = arena_of()
    for layer, shape in enumerate((WIDE, NARROW, WIDE)):
        first = entries(shape, 1, 3, 100.0 * layer)
        arena.write(layer, SlotPlan((1,), (0,), (3,), 3, 3), *first)
        second = entries(shape, 1, 2, 7.0)
        keys, values = arena.write(layer, SlotPlan((1,), (3,), (2,), 2, 5), *second)
        assert torch.equal(keys, torch.cat([first[0], second[0]], dim=2))
        assert torch.equal(values, torch.cat([first[1], second[1]], dim=2))


@pytest.mark.parametrize("rows", [(0, 1), (1, 0), (0, 2), (2, 1, 0)])
def test_a_batch_writes_each_row_from_its_own_start(rows: tuple[int, ...]) -> None:
    arena = arena_of(WIDE, rows=3)
    starts = tuple(range(len(rows)))
    plan = SlotPlan(rows, starts, (2,) * len(rows), 2, 6)
    new = entries(WIDE, len(rows), 2, 1.0)
    keys, values = arena.write(0, plan, *new)
    for i, start in enumerate(starts):
        assert torch.equal(keys[i, :, start : start + 2], new[0][i])
        assert torch.equal(values[i, :, start : start + 2], new[1][i])
        assert not keys[i, :, start + 2 :].any()


@pytest.mark.parametrize(("rows", "slots"), [(2, 8), (3, 8), (2, 9), (2, 900), (1, 4)])
def test_growth_bytes_is_the_size_after_growth(rows: int, slots: int) -> None:
    arena = arena_of()
    before, expected = arena.bytes, arena.growth_bytes(rows, slots)
    arena.reserve(rows, slots)
    assert expected == (0 if arena.bytes == before else arena.bytes)


def test_padded_queries_write_only_to_the_scratch_slot() -> None:
    arena = arena_of(WIDE)
    plan = SlotPlan((0, 1), (0, 0), (3, 1), 3, 4)
    new = entries(WIDE, 2, 3, 1.0)
    keys, _ = arena.write(0, plan, *new)
    assert torch.equal(keys[0, :, :3], new[0][0])
    assert torch.equal(keys[1, :, :1], new[0][1][:, :1])
    assert not keys[1, :, 1:3].any()


def test_growth_keeps_the_contents_and_zeroes_the_rest() -> None:
    arena = arena_of(rows=1, slots=4)
    before = entries(NARROW, 1, 4, 5.0)
    arena.write(1, SlotPlan((0,), (0,), (4,), 4, 4), *before)
    small, slots = arena.bytes, arena.slots
    arena.reserve(3, slots + 1)
    assert (arena.rows, arena.slots) == (3, 2 * slots)
    assert arena.bytes == small * 6
    keys, values = arena._layers[1]
    assert torch.equal(keys[:1, :, :4], before[0])
    assert torch.equal(values[:1, :, :4], before[1])
    assert not keys[1:].any() and not keys[:, :, slots:].any()


def test_reserving_less_changes_nothing() -> None:
    arena = arena_of(rows=2, slots=300)
    stored = arena._layers[0][0]
    arena.reserve(1, 10)
    assert (arena.rows, arena.slots) == (2, 300)
    assert arena._layers[0][0] is stored


@LAW
@given(st.integers(0, 3), st.data())
def test_compacting_gathers_one_rows_slots(start: int, data: st.DataObject) -> None:
    arena = arena_of(rows=2, slots=10)
    count = data.draw(st.integers(0, 10 - start))
    slots = sorted(data.draw(st.permutations(range(start, 10)))[:count])
    stacks_before = []
    for layer, shape in enumerate((WIDE, NARROW, WIDE)):
        for row in (0, 1):
            arena.write(layer, SlotPlan((row,), (0,), (10,), 10, 10), *entries(shape, 1, 10, row))
        stacks_before.append([part.clone() for part in arena._layers[layer]])
    arena.compact(1, start, slots)
    for layer, before in enumerate(stacks_before):
        for part, old in zip(arena._layers[layer], before, strict=True):
            assert torch.equal(part[0], old[0]), "other rows are unchanged"
            assert torch.equal(part[1, :, :start], old[1, :, :start])
            assert torch.equal(part[1, :, start : start + count], old[1][:, slots])


def test_a_pass_without_a_plan_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="needs a plan"):
        ArenaCache(arena_of(), (0, 1, 2)).update(torch.zeros(1), torch.zeros(1), 0)


@cache
def model() -> HfModel:
    module = tiny_module("llama", seed=4)
    return checked_model(module, info_of(module, "tiny", context=1024))


def last_logits(row: int, token_ids: list[int]) -> torch.Tensor:
    return model().forward([chain(row, token_ids)])[0][-1]


def test_closed_rows_are_used_again() -> None:
    llm = model()
    one, two = llm.open_row(), llm.open_row()
    llm.close_row(one)
    assert llm.open_row() == one
    for row in (one, two):
        llm.close_row(row)


def test_a_new_row_does_not_see_the_old_rows_contents() -> None:
    llm = model()
    row = llm.open_row()
    fresh = last_logits(row, [5, 6, 7])
    llm.close_row(row)
    row = llm.open_row()
    llm.forward([chain(row, [9] * 40)])
    llm.commit(row, range(40))
    llm.close_row(row)
    again = llm.open_row()
    assert again == row
    assert torch.allclose(last_logits(again, [5, 6, 7]), fresh, atol=1e-6)
    llm.close_row(again)


def test_growth_during_a_text_changes_no_logits() -> None:
    llm = model()
    text = [(3 * i) % 60 for i in range(600)]
    row, other = llm.open_row(), llm.open_row()
    llm.forward([chain(other, [8, 9])])
    llm.commit(other, range(2))
    slots = llm.arena.slots
    for i in range(0, 600, 100):
        llm.forward([chain(row, text[i : i + 100])])
        llm.commit(row, range(100))
    assert llm.arena.slots > slots
    with torch.inference_mode():
        plain = llm._module(input_ids=torch.tensor([[*text, 7]])).logits[0, -1].float()
        other_plain = llm._module(input_ids=torch.tensor([[8, 9, 7]])).logits[0, -1].float()
    assert torch.allclose(last_logits(row, [7]), plain, atol=1e-4)
    assert torch.allclose(last_logits(other, [7]), other_plain, atol=1e-4)
    for each in (row, other):
        llm.close_row(each)


@torch.inference_mode()
def test_unused_slots_do_not_change_the_logits() -> None:
    llm = model()
    rows = [llm.open_row(), llm.open_row()]
    llm.forward([chain(rows[0], [5, 6, 7]), chain(rows[1], list(range(9)))])
    llm.commit(rows[0], [0, 1])
    llm.commit(rows[1], range(9))
    alone = last_logits(rows[0], [4])
    llm.commit(rows[0], [])
    for part in (p for layer in llm.arena._layers for p in layer):
        part[rows[0], :, 9 + 2 :] = float("nan")
    one, two = llm.forward([chain(rows[0], [4]), Feed(rows[1], [3, 2], [CACHED, CACHED])])
    for part in (p for layer in llm.arena._layers for p in layer):
        part[rows[0], :, 9 + 2 :] = 0.0
    assert bool(one.isfinite().all() and two.isfinite().all())
    assert torch.allclose(one[-1], alone, atol=1e-6)
    for row in rows:
        llm.close_row(row)


def test_the_arena_begins_zeroed() -> None:
    stacks = arena_of(slots=300)._stacks
    assert stacks
    for stack in stacks:
        assert not stack.any()
