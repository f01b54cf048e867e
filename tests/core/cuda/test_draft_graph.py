"""Drafts of DraftGraphs equal drafts that SSMs make step by step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.cuda.draft_graph import DraftGraphs
from core.drafters.base import DraftRequest
from core.drafters.ssm_pool import SsmPool
from core.models.hf_model import HfModel
from core.models.loading.tree_check import checked_model
from core.models.stacking import stack_alike
from core.sequence import TokenSequence
from core.speculation_length.base import Stop
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from tests.core.models.test_stack import small
from tests.fakes import VOCAB, info_of, note_results, sequence_of, tiny_module

NAMES = ("one", "two", "three")
WARM = SamplingParams(60, temperature=0.9, seed=3)
TRUNCATED = SamplingParams(60, temperature=1.3, top_k=12, top_p=0.8, seed=5)
COLD = SamplingParams(60, seed=1)
TEXTS = ((1, 2, 3), (4, 5, 6, 7, 8, 9))
ROUNDS: Sequence[Sequence[tuple[int, ...]]] = (
    # For each round and each text, the tokens to commit. For ("own", n), see `_following`.
    (("own", 0), ("own", 2)),
    ((7,), ("own", 1)),
    (("own", 3), (9, 9, 9)),
    ((5, 6, 7, 8, 9), (3,)),
)


def make_pool(models: Sequence[HfModel], *, graphs: bool, vocab: int = VOCAB) -> SsmPool:
    """With `graphs`, DraftGraphs makes the drafts of this pool."""
    stack_alike(list(models))
    pool = SsmPool(dict(zip(NAMES, models, strict=False)), vocab)
    if graphs:
        on_gpu = models[0].device.type == "cuda"
        pool.batched = DraftGraphs(pool.ssms, vocab, capture=on_gpu)
    return pool


def pools_both_ways(count: int = 3, **changes: Any) -> tuple[SsmPool, SsmPool]:
    """Two pools of equal SSMs, with DraftGraphs and without."""
    one, other = (
        make_pool([small("llama", seed, **changes) for seed in range(count)], graphs=graphs)
        for graphs in (True, False)
    )
    return one, other


def texts(
    sampling: SamplingParams, eos: tuple[int, ...] = (), many: int = 2, **settings: Any
) -> list[TokenSequence]:
    config = SpeculationConfig(drafters=NAMES, **settings)
    results = []
    for text in TEXTS[:many]:
        noise = SeededNoise(len(results), VOCAB)
        one = sequence_of(text, config, sampling, noise, eos_ids=frozenset(eos), context_length=90)
        one.run_id = f"run {len(results)}"
        results.append(one)
    return results


def open_all(pool: SsmPool, several: Sequence[TokenSequence]) -> None:
    for sequence in several:
        for ssm in pool.ssms.values():
            ssm.open(sequence)


class Endless:
    """A stop rule that ends no draft."""

    def grows(self, score: float) -> bool:
        return True

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        return True

    def keeps(self, score: float) -> bool:
        return True

    def limits(self, drafter: str) -> None:
        return None


def draft_requests(
    pool: SsmPool,
    several: Sequence[TokenSequence],
    shapes: Sequence[tuple[int, ...]],
    **options: Any,
) -> Any:
    return {
        name: [
            DraftRequest(one, index, one.speculation.draft, shape, 40, name, **options)
            for one, shape in zip(several, shapes, strict=True)
        ]
        for index, name in enumerate(NAMES)
        if name in pool.ssms
    }


def check_equal(one: Draft, other: Draft) -> None:
    for name in ("token_ids", "parents", "ranks", "qs", "passes", "passes_ahead"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.scores == pytest.approx(other.scores, abs=1e-5)
    assert set(one.rows) == set(other.rows) and one.q is other.q is None
    for name in ("logits", "utilities"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None), name
        for node in one.rows if ours is not None else ():
            torch.testing.assert_close(
                ours[one.rows[node]], theirs[other.rows[node]], atol=1e-4, rtol=1e-4
            )


def decode(
    pools: Sequence[SsmPool],
    several: Sequence[Sequence[TokenSequence]],
    shapes: Sequence[tuple[int, ...]],
) -> list[Draft]:
    """Runs the same rounds in both pools and compares their drafts and states; returns the first
    pool's drafts."""
    for pool, own in zip(pools, several, strict=True):
        open_all(pool, own)
    first_drafts = []
    for following in ROUNDS:
        drafts = [
            pool.draft(draft_requests(pool, own, shapes))
            for pool, own in zip(pools, several, strict=True)
        ]
        for name in drafts[0]:
            for pair in zip(*(result[name] for result in drafts), strict=True):
                check_equal(*pair)
                first_drafts.append(pair[0])
        for i in range(len(several[0])):
            committed = _following(drafts[1]["one"][i], following[i])
            for pool, own, result in zip(pools, several, drafts, strict=True):
                own[i].tokens.extend(committed)
                for name in pool.ssms:
                    pool.ssms[name].commit(own[i], result[name][i], committed)
        _same_states(pools, several)
    return first_drafts


def _following(draft: Draft, expected: tuple[Any, ...]) -> tuple[int, ...]:
    """The tokens to commit: `expected` itself or, for ("own", n), at most n tokens along first
    children and then token 11."""
    if expected[0] != "own":
        return expected
    path, node = [], -1
    while len(path) < expected[1] and node in draft.parents:
        node = draft.parents.index(node)
        path.append(draft.token_ids[node])
    return (*path, 11)


def _same_states(pools: Sequence[SsmPool], several: Sequence[Sequence[TokenSequence]]) -> None:
    ours, theirs = pools
    for name in ours.ssms:
        for one, other in zip(*several, strict=True):
            temperature = theirs.ssms[name].temperature(other)
            assert ours.ssms[name].temperature(one) == pytest.approx(temperature)
            rows = []
            for pool, sequence in ((ours, one), (theirs, other)):
                model = pool.ssms[name].model
                row = pool.ssms[name]._states[sequence.run_id].row
                assert model.pending(row) == 0
                at, end = model.place(row), model.length(row)
                rows.append([part[:, at, :, :end] for part in model.arena._stacks])
            for found_row, expected in zip(*rows, strict=True):
                torch.testing.assert_close(found_row, expected, atol=1e-4, rtol=1e-4)


@pytest.fixture
def graph_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each call of `DraftGraphs._in_one_pass`, the number of SSMs for which it drafted."""
    return note_results(monkeypatch, DraftGraphs, "_in_one_pass", len)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 2, 1), (3, 1), (4,)])
@pytest.mark.parametrize("sampling", [COLD, WARM, TRUNCATED], ids=["topk", "coupled", "truncated"])
def test_drafts_of_a_stack_equal_those_made_pass_by_pass(
    sampling: SamplingParams, shape: tuple[int, ...], graph_calls: list[int]
):
    results = decode(pools_both_ways(), [texts(sampling), texts(sampling)], [shape, shape])
    assert graph_calls == [3] * len(ROUNDS)
    assert max(len(draft) for draft in results) > 2 or shape == (4,)


def test_top_p_leaves_children_out() -> None:
    narrow = replace(TRUNCATED, top_k=2, top_p=0.5)
    results = decode(pools_both_ways(), [texts(narrow), texts(narrow)], [(3, 2)] * 2)
    assert {len(draft) for draft in results} - {9}


def test_one_ssm_is_a_stack_of_one(graph_calls: list[int]) -> None:
    decode(pools_both_ways(1), [texts(WARM), texts(WARM)], [(2, 2)] * 2)
    assert graph_calls == [1] * len(ROUNDS)


def test_ssms_of_different_shapes_draft_one_after_another(graph_calls: list[int]) -> None:
    apart = [make_pool([small("llama", 0), small("qwen2", 1)], graphs=way) for way in (True, False)]
    decode(apart, [texts(COLD), texts(COLD)], [(2, 1, 1)] * 2)
    assert graph_calls == [0, 1, 1] * len(ROUNDS)


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 1, 1)])
def test_an_end_of_text_has_no_children(shape: tuple[int, ...]) -> None:
    eos = tuple(range(0, VOCAB, VOCAB // 7))[:8]
    results = decode(pools_both_ways(), [texts(WARM, eos), texts(WARM, eos)], [shape] * 2)
    assert {len(draft) for draft in results} - {14, 3}
    assert {draft.passes for draft in results} - {3} or shape[0] > 1


def test_a_request_with_a_shorter_shape_drafts_the_beginning(graph_calls: list[int]) -> None:
    shapes = [(2, 1, 1), (2, 1)]
    results = decode(pools_both_ways(), [texts(WARM), texts(WARM)], shapes)
    assert {len(draft) for draft in results} == {6, 4} and graph_calls == [3] * len(ROUNDS)


def test_the_vocabularies_of_llm_and_ssm_may_differ_in_size() -> None:
    for own in (VOCAB - 8, VOCAB + 8):
        decode(pools_both_ways(2, vocab_size=own), [texts(WARM), texts(WARM)], [(2, 2)] * 2)


@pytest.mark.parametrize(
    "case", ["best_first", "sampled", "stop", "vote_tree", "uneven", "long", "deep"]
)
def test_other_drafts_are_made_pass_by_pass(case: str, graph_calls: list[int]) -> None:
    class Never(Endless):
        def grows(self, score: float) -> bool:
            return False

    stop: Stop | None = Never() if case == "stop" else None
    settings: dict[str, Any] = {}
    if case in ("best_first", "sampled"):
        settings = {"draft": case}
    if case == "vote_tree":
        settings = {"combine": "vote_tree"}
    by_case = {"uneven": [(2, 2), (1, 2)], "deep": [(1,) * 64] * 2}
    shapes = by_case.get(case, [(2, 2)] * 2)
    many = texts(WARM, **settings)
    pool, _ = pools_both_ways()
    open_all(pool, many)
    if case == "long":
        many[0].tokens.extend([4] * 70)
    drafts = pool.draft(draft_requests(pool, many, shapes, stop=stop))
    assert all(len(draft) for each in drafts.values() for draft in each)
    assert not any(graph_calls)


def test_a_failed_pass_is_the_error_of_all_its_ssms(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _ = pools_both_ways()
    many = texts(COLD)
    open_all(pool, many)
    stack = pool.ssms["one"].model.stack  # type: ignore[attr-defined]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(stack._forward, "over", fail)
    drafts = pool.draft(draft_requests(pool, many, [(2, 1)] * 2))
    assert [str(error) for error in drafts.values()] == ["no memory"] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [COLD, WARM, TRUNCATED], ids=["topk", "coupled", "truncated"])
def test_captured_drafts_equal_those_made_pass_by_pass(
    sampling: SamplingParams, graph_calls: list[int]
) -> None:
    places = [
        make_pool([on_gpu("llama", seed) for seed in range(3)], graphs=graphs)
        for graphs in (True, False)
    ]
    several = [texts(sampling), texts(sampling)]
    for own in several:
        for i, one in enumerate(own):
            one.noise = SeededNoise(i, VOCAB, "cuda")
    decode(places, several, [(2, 2, 1)] * 2)
    batched: Any = places[0].batched
    (graphs,) = batched._groups.values()
    assert graph_calls == [3] * len(ROUNDS) and graphs._pool.captures
    assert any(one._graph.is_captured for one in graphs._graphs.values())


def on_gpu(family: str, seed: int) -> HfModel:
    module = tiny_module(family, seed=seed, dtype=torch.float32).to("cuda")
    return checked_model(module, info_of(module, f"{family}-{seed}", role="ssm"))
