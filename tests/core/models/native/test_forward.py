"""The compiled pass gives the logits of the general pass, which calls the transformers module."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core import Engine
from core.errors import EngineError
from core.models.hf_model import HfModel
from core.models.lean import LeanForward
from core.models.loading.tree_check import checked_model
from core.models.native import forward as forward_module
from core.models.native import workspace
from core.models.native.compiling import multiplies_tiles
from core.models.native.forward import CompiledForward
from core.models.native.layers import kernel, source_hash_of
from core.models.native.products import STRETCH
from core.models.protocol import CACHED, Feed, chain
from tests.core.models.test_lean import LEAN, all_logits
from tests.core.models.test_stack import alike, commit_all, feeds_of
from tests.fakes import VOCAB, info_of, tiny_module

# Products over three stretches of STRETCH inputs; the last stretch is incomplete.
LONG_SUMS = {"intermediate_size": 2 * STRETCH + 90}
# Sizes and values for which weights are stored in tiles, if the processor multiplies tiles.
TILED: dict[str, Any] = {"intermediate_size": 64, "head_dim": 8, "halved": True}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in LEAN),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"intermediate_size": 53, "vocab_size": 101}),
    ("llama", {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 3}),
    ("llama", LONG_SUMS),
    ("qwen3", {"head_dim": 10}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000}}),
]


def native_and_general(
    family: str, dtype: torch.dtype = torch.float32, halved: bool = False, **changes: Any
) -> tuple[HfModel, HfModel]:
    """`halved`: the weights are exact in bfloat16."""
    module = tiny_module(family, seed=3, dtype=dtype, halved=halved, **changes)
    unchanged = copy.deepcopy(module)
    result = checked_model(module, info_of(module, family, role="llm"))
    assert isinstance(result._forward, CompiledForward)
    return result, HfModel(unchanged, result.info, result.masks)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max() / other.abs().max().clamp(min=1.0))


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr("core.models.native.forward.MIN_BYTES_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    yield request.param


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize(("family", "changes"), SHAPES)
def test_compiled_logits_agree_with_general_ones(
    family: str, changes: dict[str, Any], halved: bool
):
    native, general = native_and_general(family, halved=halved, **changes)
    for got, expected in zip(all_logits(native), all_logits(general), strict=True):
        assert difference(got, expected) < 1e-5


def test_the_bundled_models_run_compiled(bundled: Engine) -> None:
    """This test is in this file so that one pytest worker compiles all variants."""
    for model in (bundled.models.llm, *bundled.models.ssms.values()):
        assert isinstance(model._forward, CompiledForward)  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", LEAN)
def test_bfloat16_logits_agree_within_rounding(family: str) -> None:
    native, general = native_and_general(family, torch.bfloat16)
    for got, expected in zip(all_logits(native), all_logits(general), strict=True):
        assert difference(got, expected) < 0.06


def test_weights_that_are_exact_in_bfloat16_take_half_the_memory() -> None:
    sizes = [native_and_general("llama", halved=halved)[0].weight_bytes for halved in (False, True)]
    own = sum(p.nbytes for p in tiny_module("llama", dtype=torch.float32).parameters())
    assert sizes[0] > 1.9 * own
    assert sizes[1] < 1.6 * own


@pytest.mark.parametrize(("dtype", "kept"), [(torch.float32, np.int32), (torch.bfloat16, np.int64)])
def test_weights_of_whole_tiles_are_stored_in_tiles(dtype: torch.dtype, kept: type[Any]) -> None:
    matrices = [
        native_and_general("llama", dtype, **changes)[0]._forward._weights.matrices  # type: ignore[attr-defined]
        for changes in (TILED, {"halved": True})
    ]
    assert (matrices[0].dtype == kept) == multiplies_tiles()
    assert matrices[1].dtype != kept


@pytest.mark.parametrize("changes", [{}, TILED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_threads_make_the_same_bits(threads, dtype: torch.dtype, changes: dict[str, Any]):
    native, _ = native_and_general("qwen3", dtype, **changes)
    forward: Any = native._forward
    result = all_logits(native)
    assert (forward._pool._others is None) == (threads == 1)
    alone, _ = native_and_general("qwen3", dtype, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 1)
        for one, other in zip(result, all_logits(alone), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((one, {}) for one in LEAN),
        *((one, TILED) for one in LEAN),
        ("llama", LONG_SUMS),
        ("llama", {**LONG_SUMS, "halved": True}),
    ],
)
def test_a_node_has_the_same_bits_in_every_pass(family, changes, dtype):
    model, _ = native_and_general(family, dtype, **changes)
    text, path, others = list(range(3, 20)), [5, 9, 4, 7, 11], [6, 8, 30]
    alone = []
    row = model.open_row()
    model.forward([chain(row, text, last_only=True)])
    model.commit(row, range(len(text)))
    for token in path:
        alone.append(model.forward([Feed(row, [token], [CACHED])])[0][0])
        model.commit(row, [0])
    other_row = model.open_row()
    model.forward([chain(other_row, [40, 41, 42])])
    for batched in (False, True):
        row = model.open_row()
        model.forward([chain(row, text, last_only=True)])
        model.commit(row, range(len(text)))
        # The path's nodes are 0, 2, 4, 6 and 7.
        tokens = [path[0], others[0], path[1], others[1], path[2], others[2], path[3], path[4]]
        parents = [CACHED, CACHED, 0, 0, 2, 3, 4, 6]
        feeds = [Feed(row, tokens, parents)]
        feeds += [chain(other_row, [43, 44], first=3)] if batched else []
        logits = model.forward(feeds)[0]
        for node, expected in zip((0, 2, 4, 6, 7), alone, strict=True):
            assert torch.equal(logits[node], expected)


def test_control_a_node_that_sees_another_slot_has_other_bits() -> None:
    model, _ = native_and_general("llama")
    row = model.open_row()
    model.forward([chain(row, range(3, 20))])
    model.commit(row, range(17))
    logits = model.forward([Feed(row, [5, 6, 9, 9], [CACHED, CACHED, 0, 1])])[0]
    assert not torch.equal(logits[2], logits[3])


def test_positions_past_the_first_rotary_table_are_rotated() -> None:
    native, general = native_and_general("llama", max_position_embeddings=4096)
    long = [7 + i % 50 for i in range(1500)]
    results = []
    for model in (native, general):
        model._info = info_of(tiny_module("llama"), "long", context=4096)
        results.append(model.forward([chain(model.open_row(), long, last_only=True)])[0])
    assert difference(*results) < 1e-4


@pytest.mark.parametrize("changes", [{}, TILED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_stacked_models_give_the_bits_that_each_gives_alone(family, dtype, changes):
    stack, apart = (alike(3, family, dtype, **changes) for _ in range(2))
    assert isinstance(stack._forward, CompiledForward)
    members, single = list(stack.members), list(apart.members)
    for feeds, own in zip(feeds_of(members), feeds_of(single), strict=True):
        together = stack.forward(feeds)
        for member, mine, result in zip(single, own, together, strict=True):
            assert isinstance(member._forward, CompiledForward)
            for one, other in zip(result, member.forward(mine), strict=True):
                assert torch.equal(one, other)
        commit_all(members, feeds, -1)
        commit_all(single, own, -1)


def test_members_share_the_stacks_weights() -> None:
    stack = alike(2)
    forwards: list[Any] = [stack._forward, *(member._forward for member in stack.members)]
    stacked, *own = (forward._weights.matrices for forward in forwards)
    assert all(part.base is not None and part.size == stacked.size // 2 for part in own)
    assert all(stacked.ctypes.data <= part.ctypes.data for part in own)


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    model, _ = native_and_general("llama")
    with pytest.raises(IndexError, match=f"0 to {VOCAB - 1} are allowed"):
        model.forward([chain(model.open_row(), [3, token, 4])])


def test_all_models_share_one_kernel() -> None:
    models = [native_and_general(family)[0] for family in ("llama", "qwen3")]
    models += alike(2).members
    for model in models:
        model.forward([chain(model.open_row(), [3, 4])])
    natives: list[Any] = [model._forward for model in models]
    assert {id(forward._pool.kernel) for forward in natives} == {id(kernel())}


def test_passes_reuse_their_buffers_until_these_are_too_small(monkeypatch):
    shapes: list[tuple[int, int, int]] = []
    allocate_buffers = workspace.allocate_buffers

    def note_sizes(shape: Any, parts: int, sizes: tuple[int, int, int], arena: Any) -> Any:
        shapes.append(sizes)
        return allocate_buffers(shape, parts, sizes, arena)

    monkeypatch.setattr(workspace, "allocate_buffers", note_sizes)
    monkeypatch.setattr(workspace, "CACHED_TOKENS", 4)
    monkeypatch.setattr(workspace, "STEP", 16)
    compiled, general = native_and_general("llama")
    rows = compiled.open_row(), general.open_row()
    shapes.clear()
    # Small passes, and one large pass between them; the 17th slot needs larger buffers.
    for text in ([3, 4], [5], [6, 7, 8], [9] * 6, [5, 6], [7, 8], [3], [4, 5], [6]):
        results = []
        for model, row in zip((compiled, general), rows, strict=True):
            results.append(model.forward([chain(row, text)])[0])
            model.commit(row, range(len(text)))
        assert difference(*results) < 1e-5
    assert shapes == [(6, 12, 1), (4, 32, 1)]


def test_a_failed_allocation_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, allocations = workspace.BufferCache(), [True, False, True]
    states = object()

    def allocate_buffers(*_: Any) -> tuple[object, ...]:
        if not allocations.pop(0):
            raise MemoryError
        return (None, states, ())

    monkeypatch.setattr(workspace, "allocate_buffers", allocate_buffers)
    monkeypatch.setattr(workspace, "_kv_arrays", lambda _: None)
    unused: Any = None
    cache.of(unused, 1, (1, 10, 1), unused)
    with pytest.raises(MemoryError):
        cache.of(unused, 1, (1, workspace.STEP + 1, 1), unused)
    cache.of(unused, 1, (1, workspace.STEP + 1, 1), unused)
    assert not allocations, "buffers were allocated again"


class Broken(Exception):
    """The error that a test raises in one thread of a pass."""


@pytest.mark.parametrize("failing_thread", [0, 1])
def test_a_failing_thread_releases_the_others(failing_thread: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("core.models.native.forward.MIN_BYTES_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    model, _ = native_and_general("llama")
    forward: Any = model._forward
    real = forward._pool.kernel

    def failing(*task: Any) -> None:
        if task[-1][0] == failing_thread:
            raise Broken(f"part {failing_thread}")
        real(*task)

    row = model.open_row()
    forward._pool.kernel = failing
    buffers = forward._pool._buffers
    with pytest.raises(Broken, match=f"part {failing_thread}"):
        model.forward([chain(row, [3, 4, 5])])
    assert forward._pool._buffers is not buffers, "a thread may still write to the old buffers"
    forward._pool.kernel = real
    model.commit(row, [])
    other, _ = native_and_general("llama")
    logits = model.forward([chain(row, [3, 4, 5])])[0]
    assert torch.equal(logits, other.forward([chain(other.open_row(), [3, 4, 5])])[0])


def test_a_pass_that_does_not_compile_runs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Any:
        raise EOFError("Ran out of input")

    monkeypatch.setattr(forward_module, "kernel", never)
    module = tiny_module("llama", seed=3, dtype=torch.float32)
    model = checked_model(module, info_of(module, "llama"))
    assert isinstance(model._forward, LeanForward)


@pytest.mark.parametrize("parent", [-2, 1, 1400])
def test_a_parent_that_is_not_there_is_refused(parent: int) -> None:
    model, _ = native_and_general("llama")
    row = model.open_row()
    with pytest.raises(EngineError, match=f"parent of node 1 is {parent}: -1 to 0 are there"):
        model.forward([Feed(row, [5, 6], [CACHED, parent])])


def test_the_source_hash_changes_with_any_file(tmp_path: Path) -> None:
    for name in ("parts", "kernel"):
        (tmp_path / f"{name}.py").write_text(f"x = '{name}'")
    before = source_hash_of(tmp_path)
    assert source_hash_of(tmp_path) == before
    (tmp_path / "parts.py").write_text("x = 'other'")
    assert source_hash_of(tmp_path) != before
