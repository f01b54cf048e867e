"""The compiled kernel's drafts equal drafts "over feeds", which take one forward pass per step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.native_drafting import NativeDrafting
from core.drafters.ssm_pool import SsmPool
from core.errors import OutOfMemoryError
from core.models.fastest import compiled_of
from core.models.hf_model import HfModel
from core.models.native.kernel_args import BLOCK
from core.models.stacking import Stack, batched_models_of, stack_alike
from core.sequence import TokenSequence
from core.speculation_length.base import Stop, StopLimits
from core.speculation_length.confidence import Confidence
from core.trees.draft import Draft
from core.trees.tree import ROOT, TokenTree, depths_of
from tests.core.cuda.test_draft_graph import (
    COLD,
    NAMES,
    TRUNCATED,
    WARM,
    Endless,
    draft_requests,
    open_all,
    texts,
)  # fmt: skip
from tests.core.models.test_stack import small
from tests.fakes import VOCAB, note_results

KINDS = [("topk", COLD), ("topk", WARM), ("coupled", WARM)]
NOT_SERVED = [
    ("best_first", COLD), ("best_first", WARM), ("coupled", TRUNCATED), ("sampled", WARM),
    ("sampled_iid", TRUNCATED),
]  # fmt: skip
# By round and text: the most tokens committed from `first_path`, and the tokens committed after
# them.
FOLLOWING: Sequence[Sequence[tuple[int, tuple[int, ...]]]] = (
    ((2, (4,)), (0, (5, 6))),
    ((1, (7, 8, 9)), (3, (1,))),
    ((0, (2,)), (9, ())),
)


class ServesNothing(NativeDrafting):
    """Drafts nothing, so that the pool drafts over feeds."""

    def draft(self, asked: Mapping[str, Sequence[DraftRequest]]) -> dict[str, list[Draft]]:
        return {}


def two_pools(
    count: int = 3, *, alike: bool = True, vocab: int = VOCAB, **changes: Any
) -> list[SsmPool]:
    results = []
    for serving in (NativeDrafting, ServesNothing):
        models = [small("llama" if alike or i else "qwen2", i, **changes) for i in range(count)]
        stack_alike(models)
        pool = SsmPool(dict(zip(NAMES, models, strict=False)), vocab)
        pool.batched = serving(pool.ssms)
        results.append(pool)
    return results


@pytest.fixture
def native_rounds(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """For each call of `NativeDrafting.draft`, the names of the SSMs in its result."""
    return note_results(monkeypatch, NativeDrafting, "draft", set)


def run_rounds(
    pools: Sequence[SsmPool],
    sampling: SamplingParams,
    shapes: Sequence[tuple[int, ...]],
    **options: Any,
) -> list[Draft]:
    """Asserts that both pools draft the same; returns the first pool's drafts."""
    stop, eos, kind = options.pop("stop", None), options.pop("eos", ()), options.pop("kind", "auto")
    several = [texts(sampling, eos, draft=kind, **options) for _ in pools]
    for pool, own in zip(pools, several, strict=True):
        open_all(pool, own)
    results = []
    for following in FOLLOWING:
        drafts = [
            pool.draft(_requests_of_kind(pool, own, shapes, kind, stop))
            for pool, own in zip(pools, several, strict=True)
        ]
        for name in drafts[0]:
            for one, other in zip(drafts[0][name], drafts[1][name], strict=True):
                check_same(one, other)
                results.append(one)
        for pool, own, result in zip(pools, several, drafts, strict=True):
            for i, sequence in enumerate(own):
                accepted = first_path(result["one"][i], following[i][0])
                committed = (*accepted, *following[i][1]) or (3,)
                sequence.tokens.extend(committed)
                for name in pool.ssms:
                    pool.ssms[name].commit(sequence, result[name][i], committed)
        for i in range(len(several[0])):
            for name in pools[0].ssms:
                (temperature, *cache), (reference, *reference_cache) = (
                    state_after(pool, name, own[i])
                    for pool, own in zip(pools, several, strict=True)
                )
                assert temperature == pytest.approx(reference, rel=1e-5)
                assert cache == reference_cache
    return results


def first_path(draft: Draft, length: int) -> list[int]:
    path: list[int] = []
    node = ROOT
    while len(path) < length and node in draft.parents:
        node = draft.parents.index(node)
        path.append(draft.token_ids[node])
    return path


def _requests_of_kind(
    pool: SsmPool,
    own: Sequence[TokenSequence],
    shapes: Sequence[tuple[int, ...]],
    kind: str,
    stop: Stop | None,
) -> Any:
    requests = draft_requests(pool, own, shapes, stop=stop)
    if kind == "auto":
        return requests
    return {
        name: [replace(one, kind=kind) for one in several] for name, several in requests.items()
    }


def check_same(one: Draft, other: Draft) -> None:
    """Scores may differ by rounding. The utilities of a row may differ by a constant."""
    for name in ("token_ids", "parents", "qs", "ranks", "rows", "passes", "passes_ahead"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.scores == pytest.approx(other.scores, rel=1e-5)
    assert [t.name for t in one.timings] == [t.name for t in other.timings]
    for name in ("logits", "q"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or torch.equal(ours.nan_to_num(), theirs.nan_to_num()), name
    assert (one.utilities is None) == (other.utilities is None)
    if one.utilities is not None and other.utilities is not None:
        ours, theirs = (
            part - part.amax(-1, keepdim=True) for part in (one.utilities, other.utilities)
        )
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)


def check_all_same(drafts_by_pool: Sequence[Any]) -> None:
    for name in drafts_by_pool[0]:
        for pair in zip(*(result[name] for result in drafts_by_pool), strict=True):
            check_same(*pair)


def state_after(pool: SsmPool, name: str, sequence: TokenSequence) -> Any:
    ssm = pool.ssms[name]
    model, state = ssm.model, ssm._states[sequence.run_id]
    row = state.row
    assert model.pending(row) == 0
    end = model.length(row)
    cached = [part[:, model.place(row), :, :end].tolist() for part in model.arena.stacked_kv]
    return ssm.temperature(sequence), end, cached


@pytest.mark.parametrize("changes", [{}, {"intermediate_size": 64, "halved": True}])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 2, 1), (3,)])
@pytest.mark.parametrize(("kind", "sampling"), KINDS)
def test_every_kind_of_draft_equals_one_over_feeds(
    kind, sampling, shape, changes, native_rounds, native_calls
):
    results = run_rounds(two_pools(**changes), sampling, [shape, shape], kind=kind)
    assert native_rounds == [set(NAMES)] * len(FOLLOWING)
    assert max(len(draft) for draft in results) > 2
    assert native_calls == [6] * len(FOLLOWING)


@pytest.mark.parametrize(("kind", "sampling"), NOT_SERVED)
def test_other_kinds_are_drafted_over_feeds(
    kind: str, sampling: SamplingParams, native_rounds, native_calls
):
    results = run_rounds(two_pools(), sampling, [(2, 2, 1)] * 2, kind=kind)
    assert native_rounds == [set()] * len(FOLLOWING) and not native_calls
    assert max(len(draft) for draft in results) > 2


def test_a_draft_with_too_many_rows_is_made_pass_by_pass(monkeypatch, native_calls):
    monkeypatch.setattr("core.drafters.native_inputs.MOST_ROWS", 17)
    run_rounds(two_pools(), COLD, [(2, 1), (2, 1)])
    run_rounds(two_pools(), COLD, [(2, 1), (1, 1)])
    assert native_calls == [6] * len(FOLLOWING)


def by_two_threads(pool: SsmPool) -> None:
    (stack,) = {id(ssm.model.stack): ssm.model.stack for ssm in pool.ssms.values()}.values()  # type: ignore[attr-defined]
    forward = compiled_of(stack._forward)
    forward._pool.workers = 2


def test_drafts_by_several_threads_are_the_same() -> None:
    pools = two_pools()
    by_two_threads(pools[0])
    run_rounds(pools, WARM, [(2, 2, 1), (1, 1, 1)], kind="coupled")


def test_no_drafter_waits_for_a_pass_that_is_over() -> None:
    """With one barrier count for all passes of a draft, this test would hang."""
    pool = two_pools()[0]
    by_two_threads(pool)
    for i in range(40):
        (own,) = texts(COLD)[:1]
        own.run_id += str(i)
        open_all(pool, [own])
        drafts: Any = pool.draft(draft_requests(pool, [own], [(1,) * 20]))
        assert all(len(drafts[name][0]) == 20 for name in NAMES)
        for name in NAMES:
            pool.ssms[name].close(own)


def test_drafts_with_nan_logits_equal_those_over_feeds(native_calls: list[int]) -> None:
    pools = two_pools()
    for pool in pools:
        for ssm in pool.ssms.values():
            assert isinstance(ssm.model, HfModel) and isinstance(ssm.model.stack, Stack)
        stack = pool.ssms["one"].model.stack  # type: ignore[attr-defined]
        forward = compiled_of(stack._forward)
        hidden, outputs = forward._shape.hidden, forward._shape.outputs
        head = forward._weights.matrices[-hidden * outputs :].reshape(-1, hidden, BLOCK)
        head[0, :, 3] = float("nan")  # the weights of one token in the last SSM
    drafts: list[Any] = []
    for pool in pools:
        own = texts(COLD)
        open_all(pool, own)
        drafts.append(pool.draft(draft_requests(pool, own, [(2, 1), (2, 1)])))
    for name in NAMES:
        for pair in zip(*(result[name] for result in drafts), strict=True):
            check_same(*pair)
            assert len(pair[0]) == (0 if name == NAMES[-1] else 4)
    assert native_calls == [6]


@pytest.mark.parametrize("kinds", [("topk", "coupled"), ("coupled", "coupled")])
def test_a_batched_ssm_drafts_as_alone(kinds: tuple[str, str]) -> None:
    drafts_by_way: list[list[Draft]] = []
    for groups in ([(0, 1)], [(0,), (1,)]):
        own = [texts(WARM)[0], texts(TRUNCATED)[1]]
        drafts_by_way.append([])
        for group in groups:
            pool = two_pools()[0]
            open_all(pool, [own[i] for i in group])
            shapes = [((2, 1, 1), (3, 2))[i] for i in group]
            requests = draft_requests(pool, [own[i] for i in group], shapes)
            changed = {
                name: [replace(one, kind=kinds[i]) for one, i in zip(several, group, strict=True)]
                for name, several in requests.items()
            }
            drafts: Any = pool.draft(changed)
            drafts_by_way[-1] += [drafts[name][i] for i in range(len(group)) for name in NAMES]
    for pair in zip(*drafts_by_way, strict=True):
        check_same(*pair)
    assert {len(draft) for draft in drafts_by_way[0]} == {6, 9}


@pytest.mark.parametrize("count", [1, 2])
def test_ssms_of_different_shapes_are_drafted_by_the_kernel(
    count: int, native_rounds: list[set[str]]
) -> None:
    run_rounds(two_pools(count, alike=False), WARM, [(2, 1), (1, 1)])
    assert native_rounds == [set(NAMES[:count])] * len(FOLLOWING)


@pytest.mark.parametrize("own", [2, 8, VOCAB - 8, VOCAB + 8])
@pytest.mark.parametrize("sampling", [WARM, COLD])
def test_ssms_with_other_vocabularies_are_drafted_by_the_kernel(
    own: int, sampling: SamplingParams, native_calls: list[int]
) -> None:
    """With a small vocabulary, texts hold tokens that the SSM lacks."""
    run_rounds(two_pools(2, vocab_size=own), sampling, [(3, 2), (2, 2)])
    assert native_calls == [4] * len(FOLLOWING)


def test_an_end_of_text_has_no_children() -> None:
    eos = tuple(range(0, VOCAB, VOCAB // 7))[:8]
    results = run_rounds(two_pools(), WARM, [(2, 2, 2)] * 2, eos=eos)
    assert {len(draft) for draft in results} - {14}


class EndsAtImprobable(Endless):
    def grows(self, score: float) -> bool:
        return score > 0.13

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        if drafter == "two":
            return False
        return drafter == "one" or sum(scores) > 0.1


class GivesLimits(EndsAtImprobable):
    """Gives the rule of EndsAtImprobable as limits."""

    def limits(self, drafter: str) -> StopLimits | None:
        if drafter == "two":
            return StopLimits(0.13, longest=0)
        return StopLimits(0.13, scores=None if drafter == "one" else (0.1,) * 3)


@pytest.mark.parametrize("kind", ["topk", "coupled"])
@pytest.mark.parametrize("stop", [EndsAtImprobable(), GivesLimits()])
def test_a_length_policy_ends_a_draft_as_it_grows(
    stop: EndsAtImprobable, kind: str, native_rounds, native_calls
):
    sampling = WARM if kind == "coupled" else COLD
    results = run_rounds(two_pools(), sampling, [(2, 2, 2)] * 2, stop=stop, kind=kind)
    assert len({len(draft) for draft in results}) > 3 and 0 in {len(draft) for draft in results}
    # `two` has nothing to draft; for the other SSMs the kernel needs limits.
    assert native_rounds[0] == (set(NAMES) if isinstance(stop, GivesLimits) else {"two"})
    assert native_calls == ([4] * len(FOLLOWING) if isinstance(stop, GivesLimits) else [])


def test_a_draft_stops_where_confidence_falls_below_the_threshold(native_calls: list[int]) -> None:
    stop = Confidence(SpeculationConfig(confidence_threshold=0.13)).choose().stop
    results = run_rounds(two_pools(), COLD, [(1,) * 5] * 2, stop=stop)
    assert native_calls == [6] * len(FOLLOWING)
    assert {len(draft) for draft in results} - {5}


def test_two_of_three_ssms_may_draft() -> None:
    drafts = []
    for pool in two_pools():
        own = texts(WARM)
        open_all(pool, own)
        requests = draft_requests(pool, own, [(2, 2), (2, 2)])
        del requests["two"]
        drafts.append(pool.draft(requests))
    assert list(drafts[0]) == ["one", "three"]
    check_all_same(drafts)


def test_vote_tree_and_a_fully_read_text_are_drafted_over_feeds(native_rounds: list[set[str]]):
    pool = two_pools()[0]
    own = texts(COLD, combine="vote_tree")
    open_all(pool, own)
    drafts = pool.draft(draft_requests(pool, own, [(2, 2), (2, 2)]))
    assert all(len(draft) for each in drafts.values() for draft in each)
    # In the second call below, no token is left to read: nothing was committed in between.
    plain = texts(COLD)
    for sequence in plain:
        sequence.run_id += " again"
        open_all(pool, [sequence])
    for _ in range(2):
        pool.draft(draft_requests(pool, plain, [(2, 2), (2, 2)]))
    assert native_rounds == [set(), set(NAMES), set()]


def test_after_a_failed_batch_ssms_draft_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = two_pools()

    def full(*_: object, **__: object) -> None:
        raise OutOfMemoryError("no room")

    drafts = []
    for pool in (ours, theirs):
        own = texts(WARM)
        open_all(pool, own)
        with monkeypatch.context() as patch:
            for runner in (HfModel, Stack):
                patch.setattr(runner, "drafts", full)
            drafts.append(pool.draft(draft_requests(pool, own, [(2, 2), (2, 2)])))
    check_all_same(drafts)


def test_a_type_error_in_a_batch_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = two_pools()[0]
    own = texts(WARM)
    open_all(pool, own)

    def wrong(*_: object, **__: object) -> None:
        raise TypeError("a mistake")

    for runner in (HfModel, Stack):
        monkeypatch.setattr(runner, "drafts", wrong)
    with pytest.raises(TypeError, match="a mistake"):
        pool.draft(draft_requests(pool, own, [(2, 2), (2, 2)]))


class OnlyThreeContinues(Endless):
    def limits(self, drafter: str) -> StopLimits | None:
        return StopLimits() if drafter == "three" else StopLimits(longest=1)

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        return depth == 1 or drafter == "three"


def test_an_ssm_that_stops_is_not_charged_for_the_passes_of_the_others() -> None:
    pool = two_pools()[0]
    own = texts(COLD)
    open_all(pool, own)
    drafts: Any = pool.draft(
        draft_requests(pool, own, [(1, 1, 1, 1)] * 2, stop=OnlyThreeContinues())
    )
    drafting = {}
    for name in NAMES:
        (catching_up, drafting[name]) = drafts[name][0].timings
        assert catching_up.share == pytest.approx(1 / 3)
        assert drafts[name][1].timings == drafts[name][0].timings
    assert drafting["one"].seconds == drafting["two"].seconds == 0
    assert drafting["three"].seconds > 0 and drafting["three"].share == pytest.approx(1.0)


def test_time_of_shared_passes_is_counted_once() -> None:
    pool = two_pools()[0]
    (own,) = texts(COLD)[:1]
    open_all(pool, [own])
    drafts: Any = pool.draft(draft_requests(pool, [own], [(1, 1, 1, 1)]))
    spans = [timings for name in NAMES for timings in drafts[name][0].timings]
    total_s = max(t.end for t in spans) - min(t.start for t in spans)
    assert sum(t.seconds for t in spans) == pytest.approx(total_s)


def test_an_ssm_without_the_text_fails_alone() -> None:
    pool = two_pools()[0]
    own = texts(COLD)
    for sequence in own:
        for name in ("one", "three"):
            pool.ssms[name].open(sequence)
    drafts = pool.draft(draft_requests(pool, own, [(1, 1), (1, 1)]))
    assert isinstance(drafts["two"], KeyError)
    assert all(len(draft) == 2 for name in ("one", "three") for draft in drafts[name])


def test_a_sliding_window_or_a_torch_pass_is_not_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = small("mistral", 0, sliding_window=4)
    assert windowed.masks.window and batched_models_of(windowed) is None
    from core.models import fastest

    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    alone, others = small("llama", 1), [small("llama", seed) for seed in range(2)]
    stack_alike(others)
    assert batched_models_of(alone) is None and batched_models_of(others[0]) is None


def test_nodes_fed_below_a_draft_attend_to_its_nodes() -> None:
    results = []
    for pool in two_pools():
        (own,) = texts(COLD)[:1]
        open_all(pool, [own])
        drafts: Any = pool.draft(draft_requests(pool, [own], [(2, 2, 1)]))
        for name in NAMES:
            draft = drafts[name][0]
            tokens = [*draft.token_ids, *[5] * len(draft)]
            parents = [*draft.parents, *range(len(draft))]
            none = ((),) * len(tokens)
            tree = TokenTree(tuple(tokens), tuple(parents), depths_of(parents), none)
            (logits,) = pool.ssms[name].tree_logits([(own, tree)])
            results.append(logits)
    for ours, theirs in zip(results[:3], results[3:], strict=True):
        assert torch.equal(ours, theirs)
